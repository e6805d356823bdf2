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

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

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

// While it serves, requests, the console, the log and idemctl work as it says.
func TestServing(t *testing.T) {
	t.Parallel()
	s, url := serving(t)
	said := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(s.seen.String())
		require.Len(t, found, 2, "%s: %s", pattern, &s.seen)
		return found[1]
	}
	s.until("operators in ") // the last line
	require.Equal(t, 401, pay(t, url, "", "first-key-0123456"))
	token := said(`Authorization: Bearer (\S+)'`)
	require.Eventually(t, func() bool { return pay(t, url, token, "first-key-0123456") == 201 }, patience, poll)

	res, err := http.Get(said(`console for operators at (\S+)`))
	require.NoError(t, err)
	page, err := io.ReadAll(res.Body)
	require.NoError(t, errors.Join(err, res.Body.Close()))
	require.Contains(t, string(page), "<h1>Overview</h1>")

	log := said(`What the functions log: +(\S+)`)
	require.Eventually(t, func() bool {
		lines, err := os.ReadFile(log)
		return err == nil && regexp.MustCompile(`(?m)^payments\[\d+\] .*idem: completed`).Match(lines)
	}, patience, poll)

	list := exec.Command(testmain.Program(t, "../../../idem/cmd/idemctl"), "list", "--all", "--yes")
	list.Env = os.Environ()
	for _, line := range regexp.MustCompile(`(?m)^  export (.*)$`).FindAllStringSubmatch(s.seen.String(), -1) {
		list.Env = append(list.Env, strings.Fields(line[1])...)
	}
	records, err := list.CombinedOutput()
	require.NoError(t, err, "%s", records)
	require.Regexp(t, `completed \S+ ago, attempt \d+\n  acme#charge#`, string(records))

	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, s.end())
	s.requireNoFiles()
}

// A reader that has seen enough, such as head, ends it.
func TestAReaderThatHasEndedEndsIt(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	s := prepare(t, exec.Command(build(t), "-endpoint", sharedDatabase(t)))
	s.cmd.Stdout = w
	require.NoError(t, s.cmd.Run())
	require.NoError(t, w.Close())
	s.requireNoFiles()
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
