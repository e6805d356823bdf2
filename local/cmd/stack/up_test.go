package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines collects what a command prints.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A template runs until the end, and again after a change; its tables stay.
func TestUp(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envRunDir, filepath.Join(dir, "run"))
	path := filepath.Join(dir, "shop.yaml")
	write := func(key string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(`
Resources:
  Books:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{AttributeName: KEY, AttributeType: S}]
      KeySchema: [{AttributeName: KEY, KeyType: HASH}]
  Role: {Type: AWS::IAM::Role}
`, "KEY", key)), 0o600))
	}
	// ups runs the command until it has printed a text.
	ups := func(until string, args ...string) error {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, done := &lines{}, make(chan error, 1)
		go func() { done <- up(ctx, append(args, path), out) }()
		require.Eventually(t, func() bool {
			return strings.Contains(out.String(), until) || len(done) > 0
		}, time.Minute, 10*time.Millisecond)
		cancel()
		return <-done
	}
	write("id")
	require.NoError(t, ups("table    shop-Books"))
	require.NoError(t, ups("without behaviour here: 1 AWS::IAM::Role"))
	write("isbn")
	require.ErrorContains(t, ups("table"), "the table shop-Books is there with other keys")
	require.NoError(t, ups("table    shop-Books", "-fresh"))
	entries, err := os.ReadDir(filepath.Join(dir, "run"))
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is left")
	require.ErrorContains(t, up(t.Context(), []string{"-parameter", "x", path}, &lines{}), "write it as NAME=VALUE")
}

// What has changed is seen by names, times and sizes of sources.
func TestStateOfSources(t *testing.T) {
	dir := t.TempDir()
	before := stateOf([]string{dir})
	for _, name := range []string{"notes.txt", ".git/x.go", "node_modules/x.json"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
		require.Equal(t, before, stateOf([]string{dir}), name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("x"), 0o600))
	require.NotEqual(t, before, stateOf([]string{dir}))
}
