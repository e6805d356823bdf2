package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
)

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
Outputs:
  Table: {Value: !Ref Books}
`, "KEY", key)), 0o600))
	}
	// ups runs the command until it has printed a text.
	ups := func(until string, args ...string) error {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, done := &childtest.Output{}, make(chan error, 1)
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
	outputs := filepath.Join(dir, "outputs.json")
	require.NoError(t, ups("output   shop.Table = shop-Books", "-outputs", outputs))
	text, err := os.ReadFile(outputs)
	require.NoError(t, err)
	require.JSONEq(t, `{"shop": {"Table": "shop-Books"}}`, string(text))
	entries, err := filepath.Glob(filepath.Join(dir, "run", "[0-9]*"))
	require.NoError(t, err)
	require.Empty(t, entries, "only the tables are left")
	require.ErrorContains(t, up(t.Context(), []string{"-parameter", "x", path}, io.Discard), "write it as NAME=VALUE")
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

// printing calls do at the first line with a text.
type printing struct {
	childtest.Output
	text string
	once sync.Once
	do   func()
}

func (p *printing) Write(line []byte) (int, error) {
	if strings.Contains(string(line), p.text) {
		p.once.Do(p.do)
	}
	return p.Output.Write(line)
}

// A change while it starts is seen, and what a change adds is printed.
func TestUpFollowsChanges(t *testing.T) {
	t.Setenv(envRunDir, filepath.Join(t.TempDir(), "run"))
	t.Setenv("GOWORK", "off")
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/x\n\ngo 1.26\n")
	write("main.go", "package main\nfunc main() {}\n")
	const url = `{Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !GetAtt F.Arn, AuthType: NONE}}`
	const text = `
Resources:
  F:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": "."}
    Properties: {Runtime: provided.al2023, FunctionName: f}
  U: ` + url + "\n"
	write("app.template.yaml", text)
	out := &printing{text: "function f"}
	out.do = func() { write("main.go", "package main\nfunc main() { println(\"new\") }\n") }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- up(ctx, []string{filepath.Join(dir, "app.template.yaml")}, out) }()
	got := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(out.String(), text) || len(done) > 0 }, time.Minute,
			10*time.Millisecond, "%s: %s", text, out)
		require.Empty(t, done)
	}
	got("f has changed")
	write("app.template.yaml", text+"  V: "+url+"\n")
	got("of V")
	require.ErrorContains(t, up(ctx, []string{filepath.Join(dir, "app.template.yaml")}, io.Discard),
		"another local up runs it: end that first")
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, 1, strings.Count(out.String(), "of U\n"), out)
}

// Each path has tables of its own.
func TestFoldersOfTables(t *testing.T) {
	t.Setenv(envRunDir, filepath.Join(t.TempDir(), "run"))
	seen := map[string]bool{}
	for _, path := range []string{"/ada/shop/api", "/ada/shop-api", "/ada/shop/api.yaml", "/eve/shop/api"} {
		dir, unlock, err := dataOf(t.Context(), "", path, false)
		require.NoError(t, err)
		unlock()
		require.False(t, seen[dir], dir)
		seen[dir] = true
	}
}
