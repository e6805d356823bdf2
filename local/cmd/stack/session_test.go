//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

func TestMain(m *testing.M) {
	testmain.Parallel(3) // they wait for servers and leases most of the time
	testmain.Run(m)
}

// How long a condition is waited for, and how often it is looked at.
const (
	limit = 5 * time.Minute // it only ends a broken test
	poll  = 50 * time.Millisecond
)

// build returns the path of the command, compiled, so that signals reach it and not
// `go run`.
func build(t *testing.T) string { return testmain.Program(t, ".") }

// environ marks the processes of a test, so that they are found whatever their
// parent is by now.
func environ(mark string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "IDEM_DYNAMODB_ENDPOINT=") {
			env = append(env, e)
		}
	}
	return append(env, "TMPDIR="+mark, envRunDir+"="+filepath.Join(mark, "run"))
}

// find returns the first process of the mark whose description matches.
func find(t *testing.T, mark, pattern string) (pid int) {
	re := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool {
		for p, what := range childtest.Marked(t, mark) {
			if re.MatchString(what) {
				pid = p
			}
		}
		return pid != 0
	}, limit, poll, "no process matches %s: %v", pattern, childtest.Marked(t, mark))
	return pid
}

// session is a stack that runs as a process of its own.
type session struct {
	t       *testing.T
	mark    string
	cmd     *exec.Cmd
	lines   *bufio.Scanner
	seen    strings.Builder
	last    string // line that was read
	sockets []childtest.Socket
}

func open(t *testing.T, cmd *exec.Cmd) *session {
	s := prepare(t, cmd)
	s.start()
	return s
}

func prepare(t *testing.T, cmd *exec.Cmd) *session {
	s := &session{t: t, mark: t.TempDir(), cmd: cmd}
	cmd.Env = environ(s.mark)
	return s
}

func (s *session) start() {
	out, err := s.cmd.StdoutPipe()
	require.NoError(s.t, err)
	s.cmd.Stderr = s.cmd.Stdout
	require.NoError(s.t, s.cmd.Start())
	s.t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	s.lines = bufio.NewScanner(out)
}

// until reads what the command says up to a line with the text.
func (s *session) until(text string) {
	for s.lines.Scan() {
		s.last = s.lines.Text()
		fmt.Fprintln(&s.seen, s.last)
		if strings.Contains(s.lines.Text(), text) {
			return
		}
	}
	require.Fail(s.t, "it ended before it said "+text, s.seen.String())
}

// listen notes the sockets that listen, which must all be this machine's own.
func (s *session) listen(atLeast int) {
	for pid := range childtest.Marked(s.t, s.mark) {
		s.sockets = append(s.sockets, childtest.Loopback(s.t, pid)...)
	}
	require.GreaterOrEqual(s.t, len(s.sockets), atLeast, "these listen: %v", s.sockets)
}

// end waits until the command and all that it has started have ended, and its ports and
// files are removed. It returns how the command ended.
func (s *session) end() error {
	for s.lines.Scan() {
		fmt.Fprintln(&s.seen, s.lines.Text())
	}
	err := s.cmd.Wait()
	require.Eventually(s.t, func() bool { return len(childtest.Marked(s.t, s.mark)) == 0 }, limit, poll,
		"still running: %v", childtest.Marked(s.t, s.mark))
	for _, socket := range s.sockets {
		require.Eventually(s.t, func() bool { return !socket.Open(s.t) }, limit, poll, "port %d is still open", socket.Port)
	}
	return err
}

// requireNoFiles: everything lay in the stack's own folder, which is deleted.
func (s *session) requireNoFiles() {
	left, err := filepath.Glob(filepath.Join(s.mark, "[^g]*")) // go run's own go-build* may stay
	require.NoError(s.t, err)
	require.Equal(s.t, []string{filepath.Join(s.mark, "run")}, left)
	left, err = filepath.Glob(filepath.Join(s.mark, "run", "*"))
	require.NoError(s.t, err)
	require.Empty(s.t, left)
}
