package gorun

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// module makes a module with one package that std does not have.
func module(t *testing.T, source string) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/built\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600))
	return dir
}

func TestBuildCountsWhatItCompiles(t *testing.T) {
	dir := module(t, "package main\n\nfunc main() { println(`"+t.TempDir()+"`) }\n") // never in a cache
	packages := 0
	build := func() error {
		return Build(t.Context(), dir, []string{"CGO_ENABLED=0"}, func(n int) { packages = n }, "-o", "out", ".")
	}
	require.NoError(t, build())
	require.Positive(t, packages)
	require.FileExists(t, filepath.Join(dir, "out"))
	packages = 0
	require.NoError(t, build())
	require.Zero(t, packages, "it is up to date")
}

func TestBuildSaysWhatIsWrong(t *testing.T) {
	ignore := func(int) {}
	dir := module(t, "package main\n\nfunc main() { undefined() }\n")
	require.ErrorContains(t, Build(t.Context(), dir, nil, ignore, "."), "undefined: undefined")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Build(ctx, dir, nil, ignore, "."), context.Canceled)

	t.Setenv("PATH", t.TempDir())
	require.ErrorIs(t, Build(t.Context(), dir, nil, ignore, "."), ErrNoGo)
}
