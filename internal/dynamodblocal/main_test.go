package dynamodblocal

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/internal/cache"
	"github.com/idem-go/idempotency/internal/child/childtest"
	"github.com/idem-go/idempotency/internal/testmain"
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
	fmt.Println(srv.process.PID(), srv.Endpoint())
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
