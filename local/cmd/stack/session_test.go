//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
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

// created makes the tables of the shared DynamoDB Local: sessions that start side by side
// would find half of one.
var created sync.Once

// sharedDatabase is the endpoint of a DynamoDB Local that several sessions use.
func sharedDatabase(t *testing.T) string {
	endpoint := dynamotest.Endpoint(t)
	created.Do(func() { require.NoError(t, createTables(t.Context(), dynamotest.Client(t))) })
	return endpoint
}

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

// processes lists those that refer to the mark: in their environment, their
// arguments or the file that they execute.
func processes(t *testing.T, mark string) map[int]string {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	found := map[int]string{}
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		if pid == os.Getpid() || exe == "" {
			continue // this test, or one that has ended and waits for its parent
		}
		if bytes.Contains(env, []byte(mark)) || bytes.Contains(args, []byte(mark)) || strings.HasPrefix(exe, mark) {
			found[pid] = exe + " " + string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// find returns the first process of the mark whose description matches.
func find(t *testing.T, mark, pattern string) (pid int) {
	re := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool {
		for p, what := range processes(t, mark) {
			if re.MatchString(what) {
				pid = p
			}
		}
		return pid != 0
	}, limit, poll, "no process matches %s: %v", pattern, processes(t, mark))
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
	for pid := range processes(s.t, s.mark) {
		s.sockets = append(s.sockets, childtest.Loopback(s.t, pid)...)
	}
	require.GreaterOrEqual(s.t, len(s.sockets), atLeast, "these listen: %v", s.sockets)
}

// end waits until the command, whatever it has started, its ports and its files
// are gone, and returns how it ended.
func (s *session) end() error {
	for s.lines.Scan() {
		fmt.Fprintln(&s.seen, s.lines.Text())
	}
	err := s.cmd.Wait()
	require.Eventually(s.t, func() bool { return len(processes(s.t, s.mark)) == 0 }, limit, poll,
		"still running: %v", processes(s.t, s.mark))
	for _, socket := range s.sockets {
		require.Eventually(s.t, func() bool { return !socket.Open(s.t) }, limit, poll, "port %d is still open", socket.Port)
	}
	return err
}

// requireNoFiles: everything lay in the stack's own folder, which is gone.
func (s *session) requireNoFiles() {
	left, err := filepath.Glob(filepath.Join(s.mark, "[^g]*")) // go run's own go-build* may stay
	require.NoError(s.t, err)
	require.Equal(s.t, []string{filepath.Join(s.mark, "run")}, left)
	left, err = filepath.Glob(filepath.Join(s.mark, "run", "*"))
	require.NoError(s.t, err)
	require.Empty(s.t, left)
}
