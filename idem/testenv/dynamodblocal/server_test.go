package dynamodblocal

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

// Set in a copy of this test binary that runs as another process.
const helperEnv = "DYNAMODBLOCAL_TEST_HELPER"

func TestMain(m *testing.M) { testmain.Run(m, testmain.Role{Env: helperEnv, Main: helper}) }

// helper starts a server, says so, and waits to be killed.
func helper(string) error {
	srv, err := Start(context.Background(), nil)
	if err != nil {
		return err
	}
	fmt.Println(srv.PID(), srv.Endpoint())
	select {}
}

// isolate takes away every environment variable that the package reads, and
// sends a cache that a test forgot to name to a temporary folder.
func isolate(t *testing.T) {
	t.Helper()
	for _, name := range []string{EnvEndpoint, EnvJarDir} {
		t.Setenv(name, "")
	}
	t.Setenv(cache.Env, t.TempDir())
}

// programs is [childtest.Programs] without a JAVA_HOME.
func programs(t *testing.T, names []string, scripts map[string]string) {
	t.Helper()
	childtest.Programs(t, names, scripts)
	t.Setenv("JAVA_HOME", "")
}

// provisionedCache is the user's cache, once the package is there. The test is
// skipped where it cannot be had, or fails if IDEM_REQUIRE_DYNAMODB is 1.
func provisionedCache(t *testing.T) string {
	t.Helper()
	childtest.Need(t, "DynamoDB Local", provision)
	folder, err := cache.Folder("")
	require.NoError(t, err)
	return folder
}

var provision = sync.OnceValues(func() (string, error) {
	if _, err := findJava(context.Background()); err != nil {
		return "", err
	}
	return Package.Install(context.Background(), "", func(string, ...any) {})
})

// emulator is the installed DynamoDB Local of provisionedCache.
func emulator(t *testing.T) string {
	t.Helper()
	provisionedCache(t)
	dir, err := provision()
	require.NoError(t, err)
	return filepath.Join(dir, jarDir)
}

func requireAnswers(t *testing.T, endpoint string) {
	t.Helper()
	require.NoError(t, ask(t.Context(), endpoint))
}

// fakeDynamoDB answers as DynamoDB does to a request it does not like.
func fakeDynamoDB(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Amzn-Requestid", "1")
	w.WriteHeader(http.StatusBadRequest)
}

func TestGivenEndpointIsUsedAndLeftAlone(t *testing.T) {
	isolate(t)
	running := httptest.NewServer(http.HandlerFunc(fakeDynamoDB))
	defer running.Close()
	for name, o := range map[string]*Options{
		"option":      {Endpoint: running.URL + "/"},
		"environment": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if o == nil {
				t.Setenv(EnvEndpoint, running.URL)
			}
			srv, err := Start(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, running.URL, srv.Endpoint())
			require.Contains(t, srv.Source(), "given endpoint")
			require.NoError(t, srv.Close())
			require.NoError(t, srv.Close())
			requireAnswers(t, running.URL)
		})
	}
}

func TestGivenEndpointThatDoesNotAnswerIsAnError(t *testing.T) {
	isolate(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for name, test := range map[string]struct{ url, want string }{
		"nothing there":     {closed.URL, "refused"},
		"something else":    {other.URL, "does not look like DynamoDB"},
		"no URL":            {"localhost:8000", "is not a URL like"},
		"a scheme too many": {"ftp://127.0.0.1:8000", "is not a URL like"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := Start(ctx, &Options{Endpoint: test.url})
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, EnvEndpoint)
		})
	}
}

func TestCancelledStartEndsEarly(t *testing.T) {
	isolate(t)
	silent := httptest.NewServer(http.NotFoundHandler())
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, &Options{Endpoint: silent.URL})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFolderWithoutDynamoDBLocalIsNamed(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	t.Setenv(EnvJarDir, dir)
	_, err := Start(t.Context(), nil)
	require.ErrorContains(t, err, jarName)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, EnvJarDir)

	require.NoError(t, os.WriteFile(filepath.Join(dir, jarName), nil, 0o644))
	_, err = Start(t.Context(), nil)
	require.ErrorContains(t, err, libName)
}

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
	childtest.RequireLoopbackOnly(t, srv.PID(), srv.Endpoint())

	require.NoError(t, srv.Close())
	require.NoError(t, srv.Close(), "closing again does nothing")
	childtest.RequireRefused(t, srv.Endpoint())
	require.True(t, childtest.Ended(srv.PID()))
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
	require.False(t, childtest.Ended(pid))
	requireAnswers(t, endpoint)
	require.NoError(t, parent.Process.Kill())
	childtest.RequireEnded(t, pid)
	childtest.RequireRefused(t, endpoint)
}
