package dynamostore

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
)

// pays is an operation that is not repeatable.
var pays = idem.Operation{Name: "pay"}

// withoutCircuit are the options of an engine that asks a table that is down each time.
var withoutCircuit = idem.Options{ClaimBudget: time.Minute, Now: time.Now}

// unavailable makes a call that does not get its claim, and runs nothing.
func unavailable(t *testing.T, e *idem.Engine, k string) {
	_, err := idem.Do(context.Background(), e, pays.Key("t", k), 1,
		func(context.Context, int) (int, error) { panic("it ran") })
	assert.ErrorIs(t, err, idem.ErrStoreUnavailable)
}

// together holds each claim until so many calls have sent theirs.
func together(calls int32) (sent func()) {
	var n atomic.Int32
	all := make(chan struct{})
	return func() {
		if n.Add(1) == calls {
			close(all)
		}
		<-all
	}
}

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
			engine := f.engine()
			runs, told, sent := make(chan struct{}), make(chan struct{}), together(callers)
			var inFlight, ran atomic.Int32
			f.wire.set(func(n int, op string, _ *http.Request) (*http.Response, error) {
				if op != "PutItem" {
					return nil, nil
				}
				sent()
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
		"throttled": {func() (*http.Response, error) { return answer(400, throttled), nil },
			map[string]int{"PutItem": callers + retries}},
		"no answer": {func() (*http.Response, error) { return nil, errReset },
			map[string]int{"PutItem": callers + retries, "UpdateItem": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, nil)
			engine, sent := must(idem.New(f.Store, &withoutCircuit)), together(callers)
			f.wire.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
				if op != "PutItem" {
					return nil, nil
				}
				sent()
				return tc.fail()
			})
			var calls sync.WaitGroup
			for range callers {
				calls.Go(func() { unavailable(t, engine, "k") })
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
	engine := must(idem.New(f.Store, &withoutCircuit))
	for err := error(nil); err == nil; {
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
	unavailable(t, engine, "k")
	require.Equal(t, map[string]int{"PutItem": 1, "UpdateItem": 4}, tally(f.wire.calls()))
	require.Equal(t, idem.Released, f.get(t, pays.Key("t", "k").ID()).State)
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
				s := faked(func(ctx context.Context, in any) (item, error) {
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
				})
				engine := must(idem.New(s, &idem.Options{Now: tc.now}))
				var all sync.WaitGroup
				for n := range calls {
					k := "k"
					if !tc.sameKey {
						k = strconv.Itoa(n)
					}
					all.Go(func() { unavailable(t, engine, k) })
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

// While DynamoDB cannot be reached calls send nothing, but for one a second. It is back with the first
// answer, and nothing has run in between.
func TestDynamoDBThatIsGoneIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone bool
		var claims, others, runs int
		s := faked(func(_ context.Context, in any) (item, error) {
			if _, ok := in.(*dynamodb.PutItemInput); ok {
				claims++
			} else {
				others++
			}
			if gone {
				return nil, dialRefused
			}
			return nil, nil
		})
		heard := map[notice.Kind]int{}
		engine := must(idem.New(s,
			&idem.Options{Observer: func(_ context.Context, n notice.Notice) { heard[n.Kind]++ }}))
		call := func(n int) error {
			_, err := idem.Do(t.Context(), engine, pays.Key("t", strconv.Itoa(n)), n, func(context.Context, int) (int, error) {
				runs++
				return runs, nil
			})
			return err
		}
		require.NoError(t, call(-1))
		gone, claims, others = true, 0, 0
		start := time.Now()
		for n := range 1000 {
			require.ErrorIs(t, call(n), idem.ErrStoreUnavailable)
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, claims, 5+retries+int(time.Since(start)/time.Second))
		require.Zero(t, others, "nothing can have landed")
		require.Equal(t, []int{1, 1, 0}, []int{runs, heard[notice.CircuitOpened], heard[notice.CircuitClosed]})

		gone = false
		time.Sleep(2 * time.Second)
		for n := range 10 {
			require.NoError(t, call(2000+n))
		}
		require.Equal(t, []int{11, 1}, []int{runs, heard[notice.CircuitClosed]})
	})
}
