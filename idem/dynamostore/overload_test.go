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
)

// pays is an operation that is not repeatable.
var pays = idem.Operation{Name: "pay"}

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

// Many duplicates at once of one key, on a table that answers one claim and not the others: they get a sixth more
// requests than there are callers, and nothing is taken back, since the process knows who has the key.
func TestDuplicatesAtOnceOnAnOverloadedTableSendLittle(t *testing.T) {
	const callers = 64
	for name, fails := range map[string]func() (*http.Response, error){
		"throttled": func() (*http.Response, error) { return answer(400, throttled), nil },
		"no answer": func() (*http.Response, error) { return nil, errReset },
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, nil)
			engine := f.engine()
			runs, refused, sent := make(chan struct{}), make(chan struct{}), together(callers)
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
						<-refused
						return 1, nil
					})
					if errors.Is(err, idem.ErrInFlight) && inFlight.Add(1) == callers-1 {
						close(refused)
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

// A thousand calls of ten seconds on a table that answers no claim. Each of the first ones is
// taken back, which no call may leave out; the circuit keeps the others from asking.
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
