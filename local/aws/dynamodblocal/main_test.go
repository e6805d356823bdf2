package dynamodblocal

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/cache"
)

// Set in a copy of this test binary that runs as another process.
const helperEnv = "DYNAMODBLOCAL_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper())
	}
	os.Exit(m.Run())
}

// helper starts a server, says so, and waits to be killed.
func helper() int {
	srv, err := Start(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(srv.pid, srv.Endpoint())
	select {}
}

// journal collects the lines of Options.Log.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) log(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// isolate takes away every environment variable that the package reads, and
// sends a cache that a test forgot to name to a temporary folder.
func isolate(t *testing.T) {
	t.Helper()
	for _, name := range []string{EnvEndpoint, EnvJarDir} {
		t.Setenv(name, "")
	}
	t.Setenv(EnvCacheDir, t.TempDir())
}

// binaries makes PATH a folder with just the named programs of the real PATH,
// and with scripts under the given names.
func binaries(t *testing.T, names []string, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	for name, script := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	t.Setenv("PATH", dir)
	t.Setenv("JAVA_HOME", "")
}

// provisioned is the cache that npm has filled once for all tests: the user's, to
// which no test writes.
var provisioned struct {
	once sync.Once
	dir  string
	err  error
}

// provisionedCache skips the test where the cache cannot be filled, or fails it
// if IDEM_REQUIRE_DYNAMODB is 1.
func provisionedCache(t *testing.T) string {
	t.Helper()
	provisioned.once.Do(func() {
		provisioned.dir, provisioned.err = cache.Folder("")
		if provisioned.err == nil {
			s, _ := (&Options{}).settings()
			if _, provisioned.err = findJava(t.Context()); provisioned.err == nil {
				_, provisioned.err = simulator(t.Context(), s, provisioned.dir)
			}
		}
	})
	if provisioned.err != nil {
		if os.Getenv("IDEM_REQUIRE_DYNAMODB") == "1" {
			t.Fatalf("IDEM_REQUIRE_DYNAMODB=1 and DynamoDB Local cannot be provisioned: %v", provisioned.err)
		}
		t.Skipf("DynamoDB Local cannot be provisioned: %v", provisioned.err)
	}
	return provisioned.dir
}

// emulator is the unpacked DynamoDB Local of provisionedCache.
func emulator(t *testing.T) string {
	t.Helper()
	return filepath.Join(provisionedCache(t), "dynamodb-local-1.25.1")
}

func requireAnswers(t *testing.T, endpoint string) {
	t.Helper()
	require.NoError(t, ask(t.Context(), endpoint))
}

func requireRefuses(t *testing.T, endpoint string) {
	t.Helper()
	_, err := http.Get(endpoint)
	require.Error(t, err)
}

// startHelper runs helper in another process and returns what it says.
func startHelper(t *testing.T, cache string) (cmd *exec.Cmd, pid int, endpoint string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), helperEnv+"=1", EnvCacheDir+"="+cache, EnvEndpoint+"=", EnvJarDir+"=")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it is gone already in a test that passes
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &pid, &endpoint)
	require.NoError(t, err, line)
	return cmd, pid, endpoint
}
