package processes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/aws/testmain"
)

const (
	envWorker = "IDEM_TEST_WORKER"
	envLease  = "IDEM_TEST_LEASE"
	// long outlasts a busy machine, where no lease is meant to lapse.
	long   = idem.DefaultLease
	short  = 1500 * time.Millisecond
	margin = 250 * time.Millisecond
	// patience with a store that is slow because the machine is busy.
	patience = 20 * time.Second
)

// job is what a worker is told to do.
type job struct {
	Key        string
	Repeatable bool
	// Callers that make the same call at once.
	Callers int
	// Wait for a duplicate in flight.
	Wait time.Duration
	// Hang makes the handler wait, ignoring its context, until Release exists.
	Hang    bool
	Release string
	// Effects is the file that every execution adds a line to.
	Effects string
}

// said is what a worker says: that a handler has started, or what a call got.
type said struct {
	Key      string
	Started  bool
	Value    string
	Replayed bool
	Err      string
	// Kind is the error as a sentinel's name.
	Kind string
}

func TestMain(m *testing.M) {
	testmain.Run(m, testmain.Role{Env: envWorker, Main: func(table string) error { return work(table, os.Stdin, os.Stdout) }})
}

// work does the jobs of a worker process until its input ends.
func work(table string, in io.Reader, out io.Writer) error {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: os.Getenv("IDEM_DYNAMODB_ENDPOINT"), MaxIdleConns: 256})
	if err != nil {
		return err
	}
	// Whether a busy DynamoDB Local answers in time is not what is tested here.
	store, err := dynamostore.New(client, table, &dynamostore.Options{AttemptTimeout: patience})
	if err != nil {
		return err
	}
	lease, err := time.ParseDuration(os.Getenv(envLease))
	if err != nil {
		return err
	}
	engine, err := idem.New(store, &idem.Options{
		Lease: lease, Margin: margin, ClaimBudget: 2 * patience, FinishBudget: patience,
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	say := func(s said) {
		mu.Lock()
		defer mu.Unlock()
		_ = enc.Encode(s)
	}
	var wg sync.WaitGroup
	atOnce := make(chan struct{}, 50)
	dec := json.NewDecoder(in)
	for {
		var j job
		if err := dec.Decode(&j); err != nil {
			wg.Wait()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for range max(j.Callers, 1) {
			wg.Go(func() {
				atOnce <- struct{}{}
				defer func() { <-atOnce }()
				say(call(engine, j, say))
			})
		}
	}
}

func call(engine *idem.Engine, j job, say func(said)) said {
	op := idem.Operation{Name: "work"}
	if j.Repeatable {
		op.Repeat = idem.Repeatable
	}
	var value string
	out, err := engine.Execute(context.Background(), idem.Call{
		Key: op.Key("acme", j.Key), Fingerprint: fingerprint.Bytes([]byte(j.Key)), Wait: j.Wait,
		Run: func(ctx context.Context) idem.Answer {
			info, _ := idem.InfoOf(ctx)
			value = fmt.Sprintf("%s by %d, attempt %d", j.Key, os.Getpid(), info.Attempt)
			f, err := os.OpenFile(j.Effects, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = f.WriteString(value + "\n")
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				return idem.Answer{Err: err}
			}
			say(said{Key: j.Key, Started: true})
			for j.Hang {
				if _, err := os.Stat(j.Release); err == nil {
					break
				}
				<-time.After(10 * time.Millisecond)
			}
			return idem.Answer{Body: []byte(value)}
		},
	})
	s := said{Key: j.Key, Value: string(out.Body), Replayed: out.Replayed}
	if err != nil {
		s.Err = err.Error()
		for name, sentinel := range map[string]error{
			"in flight": idem.ErrInFlight, "unknown": idem.ErrOutcomeUnknown, "lost": idem.ErrLeaseLost,
		} {
			if errors.Is(err, sentinel) && (s.Kind == "" || name == "lost") {
				s.Kind = name
			}
		}
	}
	return s
}

// worker is a process under test.
type worker struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   *json.Encoder
	stop io.Closer
	out  *bufio.Reader
}

// newTable makes an empty table for the test.
func newTable(t *testing.T) string {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	table := fmt.Sprintf("processes%d", time.Now().UnixNano())
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, table))
	return table
}

// start starts a worker process with claims of that lease; it is killed when the
// test ends.
func start(t *testing.T, table string, lease time.Duration) *worker {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envWorker+"="+table, envLease+"="+lease.String(), "IDEM_DYNAMODB_ENDPOINT="+dynamotest.Endpoint(t))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &worker{t: t, cmd: cmd, in: json.NewEncoder(in), stop: in, out: bufio.NewReader(out)}
}

func (w *worker) do(j job) { require.NoError(w.t, w.in.Encode(j)) }

// hear returns the next thing that the worker says.
func (w *worker) hear() said {
	line, err := w.out.ReadBytes('\n')
	require.NoError(w.t, err, "the worker went silent")
	var s said
	require.NoError(w.t, json.Unmarshal(line, &s))
	return s
}

// ask does one job and returns what its call got, passing over the start.
func (w *worker) ask(j job) said {
	w.do(j)
	for {
		if s := w.hear(); !s.Started {
			return s
		}
	}
}

func (w *worker) signal(sig os.Signal) { require.NoError(w.t, w.cmd.Process.Signal(sig)) }
