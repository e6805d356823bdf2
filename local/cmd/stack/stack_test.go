//go:build linux

package main

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

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
	for line := range strings.Lines(table) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), pageWidth, line)
	}
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
	at := regexp.MustCompile(`DynamoDB Local at (\S+), with the tables (\S+) `).FindStringSubmatch(s.seen.String())
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: at[1]})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		// Two refunds are killed: first the one whose client has left, then the one that is
		// sent again.
		return len(refundsInProgress(t, client, at[2])) == 2
	}, limit, poll)
	for _, key := range refundsInProgress(t, client, at[2]) {
		in := &dynamodb.DeleteItemInput{TableName: &at[2], Key: key}
		_, err := client.DeleteItem(t.Context(), in)
		require.NoError(t, err)
	}
	require.Error(t, s.end(), "%s", &s.seen)
	require.Equal(t, 1, s.cmd.ProcessState.ExitCode())
	// The records may go before the retry within the lease, or after it.
	require.Regexp(t, `(?m)^NO  not repeatable: retry .* 201 \w+ .*\n    expected: +409 \w+$`, s.seen.String())
	require.Contains(t, s.seen.String(), errDiffers.Error())
	require.Equal(t, tourLines, strings.Count(s.seen.String(), "\nok  ")+strings.Count(s.seen.String(), "\nNO  "))
}

// refundsInProgress are the keys of the items of refunds that an attempt holds.
func refundsInProgress(t *testing.T, client *dynamodb.Client, table string) (keys []map[string]types.AttributeValue) {
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{
		TableName: &table, ConsistentRead: aws.Bool(true),
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
		at     string // what it says before; empty: that it takes the tour
		victim string // empty: the command itself
		signal syscall.Signal
		want   string
		fails  bool
		files  bool // may stay
		long   bool // in the long version alone
	}{
		"Ctrl-C":              {signal: syscall.SIGINT, want: "stopped"},
		"Ctrl-C at the start": {at: "starting DynamoDB Local", signal: syscall.SIGINT},
		"SIGTERM":             {signal: syscall.SIGTERM, want: "stopped", long: true},
		"SIGKILL":             {signal: syscall.SIGKILL, fails: true, files: true},
		"end of DynamoDB": {victim: `/java `, signal: syscall.SIGKILL, fails: true,
			want: "DynamoDB Local has ended unexpectedly"},
		"end of queue server": {victim: `/node `, signal: syscall.SIGKILL, fails: true,
			want: "the queue server has ended unexpectedly", long: true},
	} {
		if c.long && os.Getenv("IDEM_LONG") != "1" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, exec.Command(build(t)))
			if s.until(cmp.Or(c.at, "taking the tour")); c.at == "" {
				find(t, s.mark, "/bin1/payments") // the first function runs
				s.listen(6)
			}
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
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			s := open(t, exec.Command("go", "run", "../.."))
			s.until("taking the tour")
			s.listen(5)
			require.NoError(t, s.cmd.Process.Signal(signal))
			_ = s.end() // go run reports the signal
			s.requireNoFiles()
		})
	}
}

// serving returns a stack and the URL of its HTTP API.
func serving(t *testing.T) (*session, string) {
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	s := open(t, exec.Command(build(t), "--no-tour"))
	s.until("Still serving")
	s.listen(6) // DynamoDB, the queue server, the HTTP API, the front, the provider, the console
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
	s.until("export ESCALATIONS=") // the last line
	require.Equal(t, 401, pay(t, url, "", "first-key-0123456"))
	token := said(`Authorization: Bearer (\S+)'`)
	require.Len(t, said(`Idempotency-Key: ([0-9a-f-]+)'`), 36, "a UUID: a function warns of a key that is easy to guess")
	require.Eventually(t, func() bool { return pay(t, url, token, "first-key-0123456") == 201 }, limit, poll)

	res, err := http.Get(said(`console for operators at (\S+)`))
	require.NoError(t, err)
	page, err := io.ReadAll(res.Body)
	require.NoError(t, errors.Join(err, res.Body.Close()))
	require.Contains(t, string(page), "<h1>Overview</h1>")

	log := said(`What the functions log: +(\S+)`)
	require.Eventually(t, func() bool {
		lines, err := os.ReadFile(log)
		return err == nil && regexp.MustCompile(`(?m)^payments-api-Payments\w+\[\d+\] .*idem: completed`).Match(lines)
	}, limit, poll)

	list := exec.Command(testmain.Program(t, "../../../idem/cmd/idemctl"), "list", "--all", "--yes")
	list.Env = os.Environ()
	for _, line := range regexp.MustCompile(`(?m)^  export (.*)$`).FindAllStringSubmatch(s.seen.String(), -1) {
		list.Env = append(list.Env, strings.Fields(line[1])...)
	}
	for _, name := range []string{"IDEM_TABLE", schema.EnvEndpoint, "AWS_ENDPOINT_URL_SQS"} {
		require.Regexp(t, `(?m)^  export `+name+`=\S+$`, s.seen.String(), "a line to copy")
	}
	records, err := list.CombinedOutput()
	require.NoError(t, err, "%s", records)
	require.Regexp(t, `completed \S+ ago, attempt \d+\n  acme#charge#`, string(records))

	sqs := queue.NewClient(said(`AWS_ENDPOINT_URL_SQS=(\S+)`))
	queues := regexp.MustCompile(`(?m)^  (?:export [A-Z]+=)?(http\S+)$`).FindAllStringSubmatch(s.seen.String(), -1)
	require.Len(t, queues, 4)
	require.Contains(t, s.seen.String(), "--endpoint-url "+said(`AWS_ENDPOINT_URL_SQS=(\S+)`)+" ",
		"old versions of the AWS command line ignore the variable, and would call AWS")
	for _, q := range queues {
		_, err := sqs.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &q[1]})
		require.NoError(t, err, q[1])
	}

	require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, s.end())
	s.requireNoFiles()
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{{"tour"}, {"--twice"}, {"-once", "--no-tour"}, {"-port", "http"}} {
		out, err := exec.Command(build(t), args...).CombinedOutput()
		require.ErrorContains(t, err, "exit status 2")
		require.Contains(t, string(out), "-no-tour", "it lists the flags")
	}
}

// A reader that has seen enough, such as head, ends it.
func TestAReaderThatHasEndedEndsIt(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	s := prepare(t, exec.Command(build(t)))
	s.cmd.Stdout = w
	require.NoError(t, s.cmd.Run())
	require.NoError(t, w.Close())
	s.requireNoFiles()
}

// TestWhatIsMissingIsNamed in one line, with what to do.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	for name, c := range map[string]struct {
		programs []string
		want     string
	}{
		"node": {[]string{"go", "java"}, "install Node.js 20"},
		"java": {[]string{"go", "node", "npm"}, "Java 17"},
		"go":   {[]string{"java", "node", "npm"}, "install Go 1.26"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := childtest.ProgramFolder(t, c.programs, nil)
			cmd := exec.Command(build(t))
			mark := t.TempDir()
			cmd.Env = append(environ(mark), "PATH="+path, "JAVA_HOME=")
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			_, said, _ := strings.Cut(string(out), "\nlocal: ") // behind the progress
			require.Contains(t, said, c.want)
			require.LessOrEqual(t, strings.Count(said, "\n"), 2, said)
		})
	}
}

// TestNothingIsSilent: what compiles or is fetched for long is reported, and what has
// ended is not. The programs that do it hang here.
func TestNothingIsSilent(t *testing.T) {
	t.Parallel()
	path := childtest.ProgramFolder(t, []string{"java", "node", "sleep"}, map[string]string{
		"go": "exec sleep 600", "npm": "exec sleep 600",
	})
	launcher := filepath.Join(t.TempDir(), "launcher")
	out, err := exec.Command("go", "build", "-o", launcher, "../..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, c := range map[string]struct {
		cmd   *exec.Cmd
		cache string
		want  []string
		ends  string // what is reported once the others have ended
	}{
		"launcher": {exec.Command(launcher), t.TempDir(), []string{"compiling the command"}, ""},
		"command": {exec.Command(build(t)), t.TempDir(),
			[]string{"compiling the functions", "starting DynamoDB Local", "starting the queue server"}, ""},
		"command, with servers that are there": {exec.Command(build(t)), os.Getenv("IDEM_CACHE_DIR"),
			[]string{"compiling the functions"}, ": still fetching modules and compiling the functions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t, c.cmd)
			s.cmd.Env = append(s.cmd.Env, "PATH="+path, "IDEM_CACHE_DIR="+c.cache)
			s.start()
			for range 2 {
				s.until(": still ")
				for _, want := range c.want {
					require.Contains(t, s.last, want)
				}
			}
			for !strings.HasSuffix(s.last, c.ends) {
				s.until(": still ")
			}
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
			require.NoError(t, s.end(), "%s", &s.seen)
		})
	}
}
