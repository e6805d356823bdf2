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
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/internal/child/childtest"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/internal/testmain"
)

func TestMain(m *testing.M) {
	testmain.Parallel(3) // they wait for servers and leases most of the time
	testmain.Run(m)
}

// How long a condition is waited for, and how often it is looked at.
const (
	patience = 5 * time.Minute // it only ends a broken test
	poll     = 50 * time.Millisecond
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
	created.Do(func() { require.NoError(t, createTables(t.Context(), endpoint)) })
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
	}, patience, poll, "no process matches %s: %v", pattern, processes(t, mark))
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
	require.Eventually(s.t, func() bool { return len(processes(s.t, s.mark)) == 0 }, patience, poll,
		"still running: %v", processes(s.t, s.mark))
	for _, socket := range s.sockets {
		require.Eventually(s.t, func() bool { return !socket.Open(s.t) }, patience, poll, "port %d is still open", socket.Port)
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

// TestTour takes the whole tour: every line must be what was expected. It has a DynamoDB
// Local of its own: the sweepers of others would ask their own providers about its refunds.
func TestTour(t *testing.T) {
	t.Parallel()
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	s := open(t, exec.Command(build(t), "-once"))
	require.NoError(t, s.end(), "%s", &s.seen)
	require.Equal(t, tourLines, strings.Count(s.seen.String(), "\nok  "), "%s", &s.seen)
	require.Regexp(t, `\n +\d+s: still taking the tour \(\d+ of \d+ lines\)`, s.seen.String())
	_, table, _ := strings.Cut(s.seen.String(), "what came")
	requireFits(t, table)
	require.NotContains(t, table, "…", "a text of the tour is too long for its column")
	s.requireNoFiles()
}

// TestTourFindsDifferences: the records are deleted while the tour waits for the
// leases of killed functions, so that their handlers run again, also the one that
// must not. It has a DynamoDB Local of its own: the others keep their records.
func TestTourFindsDifferences(t *testing.T) {
	if os.Getenv("IDEM_LONG") != "1" {
		t.Skip("a second whole tour: IDEM_LONG=1 takes it")
	}
	t.Parallel()
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	s := open(t, exec.Command(build(t), "-once"))
	s.until("taking the tour")
	client, err := newDynamoDB(regexp.MustCompile(`DynamoDB Local at (\S+),`).FindStringSubmatch(s.seen.String())[1])
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		// Two refunds are killed: first the one whose client is gone, then the one that is
		// sent again.
		return len(refundsInProgress(t, client)) == 2
	}, patience, poll)
	for _, key := range refundsInProgress(t, client) {
		in := &dynamodb.DeleteItemInput{TableName: aws.String(recordsTable), Key: key}
		_, err := client.DeleteItem(t.Context(), in)
		require.NoError(t, err)
	}
	require.Error(t, s.end(), "%s", &s.seen)
	require.Equal(t, 1, s.cmd.ProcessState.ExitCode())
	require.Regexp(t, `(?m)^NO  not repeatable: retry .* 201 executed .*\n    expected: +409 outcome_unknown$`, s.seen.String())
	require.Contains(t, s.seen.String(), errDiffers.Error())
	require.Equal(t, tourLines, strings.Count(s.seen.String(), "\nok  ")+strings.Count(s.seen.String(), "\nNO  "))
}

// refundsInProgress are the keys of the items of refunds that an attempt holds.
func refundsInProgress(t *testing.T, client *dynamodb.Client) (keys []map[string]types.AttributeValue) {
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{
		TableName: aws.String(recordsTable), ConsistentRead: aws.Bool(true),
		FilterExpression: aws.String(schema.State + " = :state AND contains(pk, :refund)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":state":  &types.AttributeValueMemberS{Value: string(idem.InProgress)},
			":refund": &types.AttributeValueMemberS{Value: "#refund#"},
		},
	})
	require.NoError(t, err)
	for _, item := range out.Items {
		keys = append(keys, map[string]types.AttributeValue{schema.PK: item[schema.PK], schema.SK: item[schema.SK]})
	}
	return keys
}

// TestNothingIsLeft ends the command, which has started servers and functions of
// its own, by signals to it and by the end of its parts. The short version has one of
// each kind: an end that is asked for, one that is not, and one of a part.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	for name, c := range map[string]struct {
		victim string // empty: the command itself
		signal syscall.Signal
		want   string
		fails  bool
		files  bool // may stay
		long   bool // in the long version alone
	}{
		"Ctrl-C":              {signal: syscall.SIGINT, want: "stopped"},
		"SIGTERM":             {signal: syscall.SIGTERM, want: "stopped", long: true},
		"SIGKILL":             {signal: syscall.SIGKILL, fails: true, files: true},
		"end of DynamoDB":     {victim: `/java `, signal: syscall.SIGKILL, fails: true, want: "DynamoDB Local has ended unexpectedly"},
		"end of queue server": {victim: `/node `, signal: syscall.SIGKILL, fails: true, want: "the queue server has ended unexpectedly", long: true},
	} {
		if c.long && os.Getenv("IDEM_LONG") != "1" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, exec.Command(build(t)))
			s.until("taking the tour")
			find(t, s.mark, "/bin/payments") // the first function runs
			s.listen(6)
			pid := s.cmd.Process.Pid
			if c.victim != "" {
				pid = find(t, s.mark, c.victim)
			}
			require.NoError(t, syscall.Kill(pid, c.signal))
			err := s.end()
			require.Equal(t, c.fails, err != nil, "%v: %s", err, &s.seen)
			require.Contains(t, s.seen.String(), c.want)
			if !c.files {
				s.requireNoFiles()
				return
			}
			// The next start clears up.
			dir := filepath.Join(s.mark, "run")
			sweep(dir)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestGoRunIsTerminated: the SIGTERM that a script sends, and a SIGKILL, reach
// `go run` alone.
func TestGoRunIsTerminated(t *testing.T) {
	t.Parallel()
	endpoint := sharedDatabase(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			s := open(t, exec.Command("go", "run", "../..", "-endpoint", endpoint))
			s.until("taking the tour")
			s.listen(5)
			require.NoError(t, s.cmd.Process.Signal(signal))
			_ = s.end() // go run reports the signal
			s.requireNoFiles()
		})
	}
}

// TestStoppedWhileItStarts: Ctrl-C while servers start and functions compile.
func TestStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	s := open(t, exec.Command(build(t)))
	s.until("starting DynamoDB Local")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, s.end(), "%s", &s.seen)
	s.requireNoFiles()
}
