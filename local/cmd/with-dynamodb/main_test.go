package main

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

// Set in a copy of this test binary that is with-dynamodb.
const commandEnv = "WITH_DYNAMODB_TEST_COMMAND"

func TestMain(m *testing.M) {
	testmain.Run(m, testmain.Role{Env: commandEnv, Main: func(string) error { main(); return nil }})
}

// fakeDynamoDB sets the endpoint to a server that answers like DynamoDB.
func fakeDynamoDB(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amzn-Requestid", "1")
	}))
	t.Cleanup(server.Close)
	t.Setenv(dynamodblocal.EnvEndpoint, server.URL)
	return server.URL
}

func TestExitCodes(t *testing.T) {
	fakeDynamoDB(t)
	for name, test := range map[string]struct {
		args []string
		want int
		says string
	}{
		"success":            {[]string{"--", "true"}, 0, "given endpoint"},
		"failure":            {[]string{"--", "sh", "-c", "exit 7"}, 7, "given endpoint"},
		"ended by a signal":  {[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15, "given endpoint"},
		"no such command":    {[]string{"/nonexistent/command"}, 127, "no such file"},
		"no command":         {nil, 2, "usage:"},
		"unknown flag":       {[]string{"-nonsense", "true"}, 2, "usage:"},
		"help":               {[]string{"-help"}, 0, "usage:"},
		"flags of a command": {[]string{"sh", "-c", `test "$1" = -q`, "sh", "-q"}, 0, "given endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			require.Equal(t, test.want, run(test.args, &stderr), stderr.String())
			require.Contains(t, stderr.String(), test.says)
		})
	}
}

func TestWithoutDynamoDBTheCommandDoesNotRun(t *testing.T) {
	t.Setenv(dynamodblocal.EnvEndpoint, "not a URL")
	var stderr bytes.Buffer
	ran := filepath.Join(t.TempDir(), "ran")
	require.Equal(t, 125, run([]string{"touch", ran}, &stderr))
	require.Contains(t, stderr.String(), dynamodblocal.EnvEndpoint)
	require.NoFileExists(t, ran)
}

func TestEnvironmentLeadsToNothingReal(t *testing.T) {
	got := environment([]string{
		"PATH=/bin", "AWS_PROFILE=production", "AWS_SESSION_TOKEN=real", "AWS_ACCESS_KEY_ID=real",
		"AWS_SECRET_ACCESS_KEY=real", "AWS_REGION=eu-west-1", "IDEM_DYNAMODB_ENDPOINT=http://other",
		"AWS_ENDPOINT_URL_DYNAMODB=http://other", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true",
	}, "http://127.0.0.1:1")
	slices.Sort(got)
	require.Equal(t, []string{
		"AWS_ACCESS_KEY_ID=idemlocal",
		"AWS_DEFAULT_REGION=us-east-1",
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:1",
		"AWS_REGION=us-east-1",
		"AWS_SECRET_ACCESS_KEY=idemlocal",
		"IDEM_DYNAMODB_ENDPOINT=http://127.0.0.1:1",
		"PATH=/bin",
	}, got)
}

// A program that knows nothing of this command, and makes its client as on AWS.
func TestClientOfAnUnchangedProgramReachesDynamoDBLocal(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("X-Amz-Target")
	}))
	defer server.Close()
	for _, entry := range environment(nil, server.URL) {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	cfg, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)
	client, err := dynamostore.NewClient(cfg, nil)
	require.NoError(t, err)
	_, err = client.ListTables(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "DynamoDB_20120810.ListTables", <-asked)
}

// A signal to with-dynamodb reaches its command. The command gets a SIGTERM where with-dynamodb is killed,
// and where go run has ended: it would go on without a database. A SIGKILL cannot be passed on, and go run
// does not pass on a SIGTERM.
func TestSignals(t *testing.T) {
	fakeDynamoDB(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		command []string
		signal  os.Signal
		gets    string
		ends    bool // with-dynamodb has the command's exit code
	}{
		"TERM":           {[]string{self}, syscall.SIGTERM, "TERM", true},
		"INT":            {[]string{self}, syscall.SIGINT, "INT", true},
		"HUP":            {[]string{self}, syscall.SIGHUP, "HUP", true},
		"KILL":           {[]string{self}, os.Kill, "TERM", false},
		"TERM to go run": {[]string{"go", "run", "."}, syscall.SIGTERM, "TERM", false},
		"KILL to go run": {[]string{"go", "run", "."}, syscall.SIGKILL, "TERM", false},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "KILL" && runtime.GOOS != "linux" {
				t.Skip("the kernel reports a parent's end to its child on Linux alone")
			}
			script := "trap 'echo got " + c.gets + "; exit 9' " + c.gets +
				"; echo ready; for i in $(seq 2000); do sleep 0.01; done"
			cmd := exec.Command(c.command[0], append(c.command[1:], "--", "sh", "-c", script)...)
			cmd.Env = append(os.Environ(), commandEnv+"=1")
			// A session without a terminal, as make and CI runners have it.
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: c.ends}
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewScanner(out)
			require.True(t, lines.Scan())
			require.Equal(t, "ready", lines.Text())
			require.NoError(t, cmd.Process.Signal(c.signal))
			require.True(t, lines.Scan())
			require.Equal(t, "got "+c.gets, lines.Text())
			require.False(t, lines.Scan(), "all that had the output have ended")
			require.Error(t, cmd.Wait())
			require.Equal(t, c.ends, cmd.ProcessState.ExitCode() == 9)
		})
	}
}

func TestProvisionsForTheCommandAndStops(t *testing.T) {
	t.Setenv(dynamodblocal.EnvEndpoint, "")
	endpointFile := filepath.Join(t.TempDir(), "endpoint")
	var stderr bytes.Buffer
	code := run([]string{"sh", "-c", `printf %s "$IDEM_DYNAMODB_ENDPOINT" > "$1"`, "sh", endpointFile}, &stderr)
	if code == exitNoServer && os.Getenv(childtest.EnvRequire) != "1" {
		t.Skip(stderr.String())
	}
	require.Zero(t, code, stderr.String())
	endpoint, err := os.ReadFile(endpointFile)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(endpoint), "http://127.0.0.1:"), string(endpoint))
	childtest.RequireRefused(t, string(endpoint))
}
