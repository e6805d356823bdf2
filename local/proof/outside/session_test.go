package outside

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
)

const (
	limit = 5 * time.Minute // it only ends a broken test
	poll  = 50 * time.Millisecond
)

// session is a local runtime that runs in a terminal of its own.
type session struct {
	*terminal
	cmd   *exec.Cmd
	ended chan struct{}
	url   string // of the API
	token string
	ports []childtest.Socket

	mu   sync.Mutex
	text strings.Builder
}

func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// said is what it has printed.
func (s *session) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// runDir has the folders of what runs, and its path marks all processes.
func (m *terminal) runDir() string { return filepath.Join(m.Dir, ".run") }

// until waits until something is so.
func (m *terminal) until(what string, is func() bool) {
	m.Helper()
	for begun := time.Now(); !is(); time.Sleep(poll) {
		require.Less(m, time.Since(begun), limit, what)
	}
}

// open starts the local runtime with a command, and returns when it serves.
func open(m *terminal, command string) *session {
	m.Helper()
	s := &session{terminal: m, ended: make(chan struct{})}
	s.cmd = exec.Command("bash", "-c", m.kept+"exec "+m.now(command))
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = m.Dir, m.Environ(), s, s
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as in a terminal, whose Ctrl-C all of the group get
	require.NoError(m, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	m.Cleanup(func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }) // it has ended if the test passes
	s.url = s.prints(`(?m)^api +(\S+) of`)
	s.token = s.prints(`a token of acme: (\S+)\n`)
	s.prints(`AWS_ENDPOINT_URL_SQS=(\S+)\n`) // the last line
	for pid := range childtest.Marked(m, m.runDir()) {
		s.ports = append(s.ports, childtest.Loopback(m, pid)...)
	}
	require.Greater(m, len(s.ports), 4, "the API, the console, the servers: %v", s.ports)
	return s
}

// prints waits until it has printed what matches, and returns the last part in brackets.
func (s *session) prints(pattern string) (found string) {
	s.Helper()
	re := regexp.MustCompile(pattern)
	s.until(pattern, func() bool {
		if m := re.FindStringSubmatch(s.said()); m != nil {
			found = m[len(m)-1]
			return true
		}
		select {
		case <-s.ended:
			return true
		default:
			return false
		}
	})
	require.NotEmpty(s, found, "it ended before it printed %s: %s", pattern, s.said())
	return found
}

// interrupt is Ctrl-C: nothing is left.
func (s *session) interrupt() {
	s.Helper()
	require.NoError(s, syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT))
	s.until("nothing runs", func() bool { return len(childtest.Marked(s, s.runDir())) == 0 })
	<-s.ended
	require.True(s, strings.HasSuffix(s.said(), "stopped\n"), s.said())
	for _, port := range s.ports {
		s.until(fmt.Sprintf("port %d is closed", port.Port), func() bool { return !port.Open(s) })
	}
	left, err := filepath.Glob(filepath.Join(s.runDir(), "[0-9]*"))
	require.NoError(s, err)
	require.Empty(s, left, "only the tables are left")
}

// answer is what the API answers.
type answer struct {
	status   int
	replayed bool
	body     string
}

// post sends a request, with a key unless it is empty. What is refused on a busy machine (503) is sent again.
func (s *session) post(path, key, body string) (got answer) {
	s.Helper()
	for begun := time.Now(); got.status == 0 || got.status == http.StatusServiceUnavailable; {
		require.Less(s, time.Since(begun), limit, got.body)
		req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
		require.NoError(s, err)
		req.Header = http.Header{"Authorization": {"Bearer " + s.token}, "Content-Type": {"application/json"}}
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(s, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(s, err)
		require.NoError(s, res.Body.Close())
		got = answer{res.StatusCode, res.Header.Get("Idempotency-Replayed") == "true", string(text)}
	}
	return got
}
