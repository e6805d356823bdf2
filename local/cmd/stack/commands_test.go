//go:build linux

package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/child/childtest"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
)

// call runs a command beside the session, and returns what it says and its exit
// code.
func (s *session) call(args ...string) (string, int) {
	cmd := exec.Command(build(s.t), args...)
	cmd.Dir = "../../.."
	cmd.Env = environ(s.mark)
	out, err := cmd.CombinedOutput()
	if _, exit := err.(*exec.ExitError); !exit {
		require.NoError(s.t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// must is call for what succeeds.
func (s *session) must(args ...string) string {
	out, code := s.call(args...)
	require.Zero(s.t, code, "%v: %s", args, out)
	return out
}

// invoke is must for that command. On a busy machine the store may be too slow for a
// claim: then the same is invoked again, as a client does that is told so, and what has been
// executed since is replayed.
func (s *session) invoke(args ...string) (out string, again bool) {
	for ; ; again = true {
		out = s.must(append([]string{"invoke"}, args...)...)
		if !strings.Contains(out, "store_unavailable") {
			return out, again
		}
	}
}

// unread runs a command whose output nobody reads, as behind a head that has seen
// enough.
func (s *session) unread(args ...string) {
	r, w, err := os.Pipe()
	require.NoError(s.t, err)
	require.NoError(s.t, r.Close())
	cmd := exec.Command(build(s.t), args...)
	cmd.Dir, cmd.Env, cmd.Stdout = "../../..", environ(s.mark), w
	require.NoError(s.t, cmd.Run())
	require.NoError(s.t, w.Close())
}

// serving returns a stack and the URL of its HTTP API.
func serving(t *testing.T) (*session, string) {
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	s := open(t, exec.Command(build(t), "--no-tour"))
	s.until("Still serving")
	s.listen(6) // DynamoDB, the queue server, the HTTP API, the wire, the provider, the console
	url := regexp.MustCompile(`HTTP API at (\S+),`).FindStringSubmatch(s.seen.String())
	require.Len(t, url, 2)
	return s, url[1]
}

func TestCommands(t *testing.T) {
	t.Parallel()
	s, url := serving(t)
	const orderEvent = "lambda/functions/orders/event.json"

	// Flags work with one dash and with two.
	out, again := s.invoke("-event", "apigw-v2-jwt", "-times", "3")
	if !again {
		require.Contains(t, out, "2 × 201 replayed, 1 × 201 executed")
		require.Regexp(t, `1 +201 executed +1 +[0-9.]+m?s +\d+ \(cold\) +[0-9a-f-]{36}`, out)
	}
	require.Regexp(t, `3 +201 replayed +\d +[0-9.]+m?s +\d+ +[0-9a-f-]{36}`, out)
	out, again = s.invoke("--event", orderEvent, "--times=2")
	if !again {
		require.Contains(t, out, "1 × executed, 1 × replayed")
	}
	out, _ = s.invoke("-event", "apigw-v2-none", "-parallel", "3")
	require.Contains(t, out, "3 × 403 tenant_missing", "without an authorizer there is no tenant")
	out, _ = s.invoke("-event", "sqs-standard")
	require.Contains(t, out, "3 × key_invalid (3 redelivered)")
	out, _ = s.invoke("-event", "s3", "-function", payments)
	require.Contains(t, out, "1 × ")
	out, code := s.call("invoke", "-event", "s3")
	require.Equal(t, 2, code)
	require.Contains(t, out, "-function")

	out = s.must("records")
	require.Regexp(t, `acme +fulfil +completed +\d .* expires in (29d0h|28d23h)`, out)
	require.Regexp(t, `2f4c8d1a-6a3e-4e8e-9b57-6d0f1c2e3a4b +charge +completed +\d .* expires in (1d0h|24h|23h59m) +\d+ B`, out)
	require.Contains(t, out, "2 of 2 records")
	require.Contains(t, s.must("records", "-state", "unknown"), "0 of 2 records")
	require.Regexp(t, `acme#fulfil#[\w-]{43}`, s.must("records", "-ids"))

	out = s.must("logs", "-function", orders)
	require.Regexp(t, `(?m)^orders\[\d+\] \d\d:\d\d:`, out)
	require.Regexp(t, `WARN +idem: message will be redelivered .*reason=key_invalid`, out)
	require.NotContains(t, out, "payments[")
	s.unread("logs")

	require.Equal(t, 401, pay(t, url, "", "first-key-0123456"))
	token := strings.TrimSpace(s.must("token", "-tenant", "globex"))
	require.Eventually(t, func() bool { return pay(t, url, token, "first-key-0123456") == 201 }, patience, poll)
	require.Regexp(t, `globex +charge +completed`, s.must("records"))

	pages := regexp.MustCompile(`console for operators at (\S+)`).FindStringSubmatch(s.seen.String())
	require.Len(t, pages, 2)
	res, err := http.Get(pages[1])
	require.NoError(t, err)
	page, err := io.ReadAll(res.Body)
	require.NoError(t, errors.Join(err, res.Body.Close()))
	require.Contains(t, string(page), "<h1>Overview</h1>")

	out = s.must("reset")
	require.Contains(t, out, "table idem: 4 items deleted")
	require.Contains(t, out, "table orders: 1 items deleted")
	require.Contains(t, s.must("records"), "0 of 0 records")
	out, again = s.invoke("-event", orderEvent)
	if !again {
		require.Contains(t, out, "1 × executed")
	}

	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, s.end())
	s.requireNoFiles()
	for _, args := range [][]string{{"records"}, {"logs"}, {"reset"}, {"token"}} {
		out, code := s.call(args...)
		require.Equal(t, 1, code)
		require.Equal(t, "local: "+errNothingRuns.Error()+"\n", out)
	}
}

func pay(t *testing.T, url, token, key string) int {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/payments", strings.NewReader(`{"amount": 1, "currency": "EUR"}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Tenant", "acme") // which nobody believes
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	return res.StatusCode
}

// TestInvokeStartsWhatItNeeds, and leaves nothing.
func TestInvokeStartsWhatItNeeds(t *testing.T) {
	t.Parallel()
	endpoint := sharedDatabase(t)
	for {
		s := open(t, exec.Command(build(t), "invoke", "-event", "../../../lambda/functions/orders/event.json", "-times", "2", "-endpoint", endpoint))
		require.NoError(t, s.end(), "%s", &s.seen)
		require.Contains(t, s.seen.String(), "nothing runs here: starting everything")
		s.requireNoFiles()
		if strings.Contains(s.seen.String(), "store_unavailable") {
			continue // on a busy machine; another start finds the table, and what was executed
		}
		require.Regexp(t, `1 × executed, 1 × replayed|2 × replayed`, s.seen.String())
		return
	}
}

// TestWhatIsMissingIsNamed in one line, with what to do.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	endpoint := sharedDatabase(t)
	for name, c := range map[string]struct {
		programs []string
		endpoint string
		want     string
	}{
		"node": {[]string{"go", "java"}, endpoint, "install Node.js 20"},
		"java": {[]string{"go", "node", "npm"}, "", "Java 17"},
		"go":   {[]string{"java", "node", "npm"}, endpoint, "install Go 1.26"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := childtest.ProgramFolder(t, c.programs, nil)
			cmd := exec.Command(build(t), "-endpoint", c.endpoint)
			mark := t.TempDir()
			cmd.Env = append(environ(mark), "PATH="+path, "JAVA_HOME=")
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			said := lastLines(string(out))
			require.Contains(t, said, c.want)
			require.LessOrEqual(t, strings.Count(said, "\n"), 2, said)
		})
	}
}

// lastLines are those that follow the progress.
func lastLines(out string) string {
	_, said, _ := strings.Cut(out, "\nlocal: ")
	return said
}
