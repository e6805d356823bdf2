package dynamodblocal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/child/childtest"
)

func TestFolderIsRunAndEndsWithClose(t *testing.T) {
	dir := emulator(t)
	isolate(t)
	t.Setenv(EnvJarDir, dir)
	cache := t.TempDir()
	t.Setenv(EnvCacheDir, cache)
	temporary := t.TempDir()
	t.Setenv("JAVA_TOOL_OPTIONS", "-Djava.io.tmpdir="+temporary)
	srv, err := Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Close() })
	require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, srv.Endpoint())
	require.Contains(t, srv.Source(), "folder "+dir)
	require.Contains(t, srv.Source(), "shipped loopback class")
	requireAnswers(t, srv.Endpoint())

	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close(), "closing again does nothing")
	requireRefuses(t, srv.Endpoint())
	require.True(t, childtest.Gone(srv.pid))
	require.NoError(t, checkTree(dir), "nothing was written to the user's folder")

	// DynamoDB Local keeps an installation id for its telemetry where it runs.
	files, err := filepath.Glob(filepath.Join(cache, "*", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1, "the class alone: telemetry was never set up")
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left, "no copy of the SQLite library is left")
}

func TestFailingJVMShowsItsLastLines(t *testing.T) {
	isolate(t)
	if _, err := findJava(t.Context()); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, libName), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, jarName), []byte("no jar"), 0o644))
	_, err := Start(t.Context(), &Options{JarDir: dir})
	require.ErrorContains(t, err, "ended before it answered")
	require.ErrorContains(t, err, "zip")
	require.ErrorContains(t, err, "at Loopback.main")
}

func TestServerEndsWhenTheParentIsKilled(t *testing.T) {
	cache := provisionedCache(t)
	isolate(t)
	parent, pid, endpoint := startHelper(t, cache)
	require.False(t, childtest.Gone(pid))
	requireAnswers(t, endpoint)
	require.NoError(t, parent.Process.Kill())
	childtest.RequireGone(t, pid)
	requireRefuses(t, endpoint)
}
