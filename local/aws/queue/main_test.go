package queue

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

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/cache"
)

// Set in a copy of this test binary that runs as another process.
const helperEnv = "QUEUE_TEST_HELPER"

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
	fmt.Println(srv.process.PID(), srv.Endpoint())
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

// installed is the cache that npm has filled once for all tests: the user's, to
// which no test writes.
var installed struct {
	once sync.Once
	dir  string
	err  error
}

// installedCache skips the test where the cache cannot be filled, or fails it
// if IDEM_REQUIRE_DYNAMODB is 1.
func installedCache(t *testing.T) string {
	t.Helper()
	installed.once.Do(func() {
		installed.dir, installed.err = cache.Folder("")
		if installed.err == nil {
			if _, installed.err = findNode(t.Context()); installed.err == nil {
				_, installed.err = install(t.Context(), quiet(t), installed.dir)
			}
		}
	})
	if installed.err != nil {
		if os.Getenv("IDEM_REQUIRE_DYNAMODB") == "1" {
			t.Fatalf("IDEM_REQUIRE_DYNAMODB=1 and the queue server cannot be had: %v", installed.err)
		}
		t.Skipf("the queue server cannot be had: %v", installed.err)
	}
	return installed.dir
}

func quiet(t *testing.T) Options {
	t.Helper()
	o, err := (*Options)(nil).withDefaults()
	require.NoError(t, err)
	return o
}

// started is a server that ends with the test.
func started(t *testing.T) *Server {
	t.Helper()
	srv, err := Start(t.Context(), &Options{CacheDir: installedCache(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

func client(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "eu-central-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
		}),
	})
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
}

func requireAnswers(t *testing.T, endpoint string) {
	t.Helper()
	_, err := client(endpoint).ListQueues(t.Context(), &sqs.ListQueuesInput{})
	require.NoError(t, err)
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
	cmd.Env = append(os.Environ(), helperEnv+"=1", EnvCacheDir+"="+cache)
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
