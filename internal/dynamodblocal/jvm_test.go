package dynamodblocal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/internal/cache"
	"github.com/idem-go/idempotency/internal/child/childtest"
)

func TestFolderIsRunAndEndsWithClose(t *testing.T) {
	dir, user := emulator(t), provisionedCache(t)
	isolate(t)
	t.Setenv(EnvJarDir, dir)
	folder := t.TempDir()
	t.Setenv(cache.Env, folder)
	temporary := t.TempDir()
	t.Setenv("JAVA_TOOL_OPTIONS", "-Djava.io.tmpdir="+temporary)
	srv, err := Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Close() })
	require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, srv.Endpoint())
	require.Contains(t, srv.Source(), "folder "+dir)
	require.Contains(t, srv.Source(), "shipped loopback class")
	requireAnswers(t, srv.Endpoint())
	childtest.RequireLoopbackOnly(t, srv.process.PID(), srv.Endpoint())

	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close(), "closing again does nothing")
	childtest.RequireRefused(t, srv.Endpoint())
	require.True(t, childtest.Gone(srv.process.PID()))
	again, err := Package.Install(t.Context(), user, func(format string, args ...any) { require.Fail(t, format, args...) })
	require.NoError(t, err)
	require.Equal(t, dir, filepath.Join(again, jarDir), "nothing was written to the user's folder")

	// DynamoDB Local keeps an installation id for its telemetry where it runs.
	files, err := filepath.Glob(filepath.Join(folder, "*", "*"))
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
	folder := provisionedCache(t)
	isolate(t)
	parent, pid, endpoint := childtest.Rerun(t, helperEnv, cache.Env+"="+folder)
	require.False(t, childtest.Gone(pid))
	requireAnswers(t, endpoint)
	require.NoError(t, parent.Process.Kill())
	childtest.RequireGone(t, pid)
	childtest.RequireRefused(t, endpoint)
}
