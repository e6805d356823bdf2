package dynamostore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/internal/dynamodblocal"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
)

// pays is an operation that is not repeatable.
var pays = idem.Operation{Name: "pay"}

// tally counts requests by operation.
func tally(ops []string) map[string]int {
	n := map[string]int{}
	for _, op := range ops {
		n[op]++
	}
	return n
}

// Many duplicates at once of one key, on a table that answers one claim and not the others:
// they get a sixth more requests than there are callers, and nothing is taken back, since
// the process knows who has the key.
func TestDuplicatesAtOnceOnAnOverloadedTableSendLittle(t *testing.T) {
	const callers = 64
	for name, fails := range map[string]func() (*http.Response, error){
		"throttled": func() (*http.Response, error) { return answer(400, throttled), nil },
		"no answer": func() (*http.Response, error) { return nil, errReset },
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, nil)
			engine, err := idem.New(f.Store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute, Observer: func(context.Context, notice.Notice) {}})
			require.NoError(t, err)
			all, runs, told := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var sent, inFlight, ran atomic.Int32
			f.wire.set(func(n int, op string, _ *http.Request) (*http.Response, error) {
				if op != "PutItem" {
					return nil, nil
				}
				if sent.Add(1) == callers {
					close(all)
				}
				<-all // each call has sent its claim
				if n == 0 {
					return nil, nil
				}
				<-runs
				return fails()
			})
			var calls sync.WaitGroup
			for range callers {
				calls.Go(func() {
					_, err := idem.Do(context.Background(), engine, pays.Key("t", "k"), 1, func(context.Context, int) (int, error) {
						ran.Add(1)
						close(runs)
						<-told
						return 1, nil
					})
					if errors.Is(err, idem.ErrInFlight) && inFlight.Add(1) == callers-1 {
						close(told)
					}
				})
			}
			calls.Wait()
			require.EqualValues(t, 1, ran.Load())
			require.EqualValues(t, callers-1, inFlight.Load())
			require.Equal(t, map[string]int{"PutItem": callers + retries, "UpdateItem": 1}, tally(f.wire.calls()))
		})
	}
}

// Where no call gets the claim, what may have landed is taken back: of one key with one write.
func TestClaimsAtOnceWithoutAnswerAreAllTakenBack(t *testing.T) {
	const callers = 64
	for name, tc := range map[string]struct {
		fail     func() (*http.Response, error)
		requests map[string]int
	}{
		"throttled": {func() (*http.Response, error) { return answer(400, throttled), nil }, map[string]int{"PutItem": callers + retries}},
		"no answer": {func() (*http.Response, error) { return nil, errReset }, map[string]int{"PutItem": callers + retries, "UpdateItem": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, nil)
			engine, err := idem.New(f.Store, &idem.Options{ClaimBudget: time.Minute, Now: time.Now, Observer: func(context.Context, notice.Notice) {}})
			require.NoError(t, err)
			f.wire.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
				if op != "PutItem" {
					return nil, nil
				}
				return tc.fail()
			})
			var calls sync.WaitGroup
			for range callers {
				calls.Go(func() {
					_, err := idem.Do(context.Background(), engine, pays.Key("t", "k"), 1, func(context.Context, int) (int, error) { panic("it ran") })
					if !errors.Is(err, idem.ErrStoreUnavailable) {
						t.Errorf("%v", err)
					}
				})
			}
			calls.Wait()
			require.Equal(t, tc.requests, tally(f.wire.calls()))
		})
	}
}

// A claim that may have landed is taken back although the retries are used up and the table
// throttles: here it has landed, and nobody is in flight afterwards.
func TestWithdrawalThatIsThrottledIsStillSent(t *testing.T) {
	f := open(t, nil)
	engine, err := idem.New(f.Store, &idem.Options{ClaimBudget: time.Minute, Now: time.Now, Observer: func(context.Context, notice.Notice) {}})
	require.NoError(t, err)
	for err == nil {
		_, err = f.retry.quota.GetToken(t.Context(), retryCost)
	}
	throttles := 3
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op == "PutItem" {
			return f.wire.loseReply(req)
		}
		throttles--
		if throttles >= 0 {
			return answer(400, throttled), nil
		}
		return nil, nil
	})
	key := pays.Key("t", "k")
	_, err = idem.Do(t.Context(), engine, key, 1, func(context.Context, int) (int, error) { panic("it ran") })
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Equal(t, map[string]int{"PutItem": 1, "UpdateItem": 4}, tally(f.wire.calls()))
	require.Equal(t, idem.Released, f.get(t, key.ID()).State)
}

// A thousand calls of ten seconds on a table that answers no claim. Each of the first ones is
// taken back, which nobody may leave out; the circuit keeps the others from asking.
func TestAThousandCallsWithoutAnswerSendFewRequests(t *testing.T) {
	const calls = 1000
	for _, tc := range []struct {
		name                   string
		silent                 bool // or a connection that is reset
		answersWrites, sameKey bool
		now                    func() time.Time // of an engine without a circuit
		most                   int
	}{
		// A table that answers is not down, whatever it answers: a claim and its withdrawal each.
		{"withdrawals are answered", false, true, false, nil, calls * 21 / 10},
		{"withdrawals are answered, silent", true, true, false, nil, calls * 21 / 10},
		{"nothing is answered", false, false, false, nil, calls / 2},
		{"nothing is answered, silent", true, false, false, nil, calls / 2},
		{"nothing is answered, one key", false, false, true, nil, calls / 5},
		{"withdrawals are answered, one key, without the circuit", false, true, true, time.Now, calls * 12 / 10},
		{"nothing is answered, one key, without the circuit", true, false, true, time.Now, calls * 12 / 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent, writes atomic.Int32
				var back atomic.Bool
				s, err := New(fake(func(ctx context.Context, in any) (item, error) {
					sent.Add(1)
					_, claims := in.(*dynamodb.PutItemInput)
					if !claims {
						writes.Add(1)
					}
					switch {
					case back.Load() || !claims && tc.answersWrites:
						return nil, nil
					case tc.silent:
						<-ctx.Done()
						return nil, canceled
					}
					return nil, readReset
				}), "table", nil)
				require.NoError(t, err)
				engine, err := idem.New(s, &idem.Options{Now: tc.now, Observer: func(context.Context, notice.Notice) {}})
				require.NoError(t, err)
				var all sync.WaitGroup
				for n := range calls {
					k := "k"
					if !tc.sameKey {
						k = strconv.Itoa(n)
					}
					all.Go(func() {
						_, err := idem.Do(context.Background(), engine, pays.Key("t", k), 1, func(context.Context, int) (int, error) { panic("it ran") })
						if !errors.Is(err, idem.ErrStoreUnavailable) {
							t.Errorf("%v", err)
						}
					})
					time.Sleep(10 * time.Millisecond)
				}
				all.Wait()
				t.Logf("%d requests, %d of them to take claims back", sent.Load(), writes.Load())
				require.LessOrEqual(t, int(sent.Load()), tc.most)
				back.Store(true)
				require.NoError(t, engine.Flush(t.Context()))
				require.Positive(t, writes.Load())
			})
		})
	}
}

// anew makes a connection for each request: none is on its way to a server that has ended.
var anew = &http.Transport{DisableKeepAlives: true}

// restarted sends requests to a DynamoDB Local of its own, which it can stop and start again.
type restarted struct {
	tb  testing.TB
	mu  sync.Mutex
	srv *dynamodblocal.Server
	url *url.URL
}

func (r *restarted) start() {
	srv, err := dynamodblocal.Start(context.Background(), nil)
	require.NoError(r.tb, err)
	at, err := url.Parse(srv.Endpoint())
	require.NoError(r.tb, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.srv, r.url = srv, at
}

func (r *restarted) stop() { require.NoError(r.tb, r.srv.Close()) }

func (r *restarted) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	at := r.url.Host
	r.mu.Unlock()
	req = req.Clone(req.Context())
	req.URL.Host = at
	return anew.RoundTrip(req)
}

// While DynamoDB is gone calls send nothing, but for one a second. It is back with the first
// answer, and nothing has run in between.
func TestDynamoDBThatIsGoneIsLeftAlone(t *testing.T) {
	t.Setenv(dynamodblocal.EnvEndpoint, "") // this test stops the one that it starts
	local := &restarted{tb: t}
	local.start()
	defer func() { local.stop() }()
	w := &wire{next: local}
	client, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://127.0.0.1:1", Transport: w})
	require.NoError(t, err)
	const table = "gone"
	create := func() { require.NoError(t, CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, table)) }
	create()
	store, err := New(client, table, &patient)
	require.NoError(t, err)
	var opened, closed, runs atomic.Int32
	engine, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute, Observer: func(_ context.Context, n notice.Notice) {
		switch n.Kind {
		case notice.CircuitOpened:
			opened.Add(1)
		case notice.CircuitClosed:
			closed.Add(1)
		}
	}})
	require.NoError(t, err)
	call := func(n int) error {
		_, err := idem.Do(t.Context(), engine, pays.Key("t", strconv.Itoa(n)), n, func(context.Context, int) (int, error) { return int(runs.Add(1)), nil })
		return err
	}
	require.NoError(t, call(-1))
	local.stop()
	w.calls()
	start := time.Now()
	var took []time.Duration
	for n := range 100 {
		began := time.Now()
		require.ErrorIs(t, call(n), idem.ErrStoreUnavailable)
		took = append(took, time.Since(began))
	}
	sent, seconds := tally(w.calls()), int(time.Since(start)/time.Second)
	require.LessOrEqual(t, sent["PutItem"], 5+retries+seconds)
	require.Len(t, sent, 1, "nothing can have landed")
	require.EqualValues(t, 1, runs.Load())
	require.EqualValues(t, 1, opened.Load())
	require.Zero(t, closed.Load())
	if os.Getenv("IDEM_LONG") == "1" {
		require.Less(t, slices.Sorted(slices.Values(took[50:]))[25], 5*time.Millisecond, "the median of the latter half")
	}

	local.start()
	create()
	require.Eventually(t, func() bool { return call(100) == nil }, time.Minute, 50*time.Millisecond)
	require.EqualValues(t, 2, runs.Load())
	require.EqualValues(t, 1, closed.Load())
	for n := range 10 {
		require.NoError(t, call(200+n))
	}
}

// BenchmarkStoreDown is what a call costs while DynamoDB is gone.
func BenchmarkStoreDown(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	require.NoError(b, l.Close())
	client, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://" + l.Addr().String()})
	require.NoError(b, err)
	s, err := New(client, "table", nil)
	require.NoError(b, err)
	engine, err := idem.New(s, &idem.Options{Observer: func(context.Context, notice.Notice) {}})
	require.NoError(b, err)
	slow := 0
	call := func() time.Duration {
		start := time.Now()
		_, err := idem.Do(context.Background(), engine, pays.Key("t", "k"), 1, func(context.Context, int) (int, error) { panic("it ran") })
		require.ErrorIs(b, err, idem.ErrStoreUnavailable)
		return time.Since(start)
	}
	for range 99 {
		call()
	}
	b.Logf("the 100th call took %v", call())
	b.ReportAllocs()
	for b.Loop() {
		if call() > 5*time.Millisecond {
			slow++ // it was the one that asks, or had to wait for a core
		}
	}
	b.ReportMetric(float64(slow), "over-5ms")
}
