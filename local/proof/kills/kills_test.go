package kills

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/local/aws/child/childtest"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// A function that hangs is killed at its time-out, or before it by somebody; its
// record goes by its declaration, and others are served meanwhile.
func TestHangs(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"killed at the time-out", "killed before"} {
		for _, kind := range []idem.Repeat{idem.Repeatable, idem.NotRepeatable} {
			t.Run(fmt.Sprintf("%s, %s", end, kind), func(t *testing.T) {
				t.Parallel()
				s := newSetup(t, runtime.Function{MaxInstances: 1, Timeout: 4 * time.Second}, nil)
				o := order{id: "hanging", kind: kind}
				flag := filepath.Join(s.hang, o.id)
				require.NoError(t, os.WriteFile(flag, nil, 0o600))

				hung := make(chan runtime.Result, 1)
				go func() {
					result, err := s.pool.Invoke(context.Background(), o.event(), nil)
					for err == nil && result.Error != nil && slices.Contains(busy, result.Error.Type) {
						result, err = s.pool.Invoke(context.Background(), o.event(), nil)
					}
					hung <- result
				}()
				require.Eventually(t, func() bool { return len(s.booked(o)) == 1 }, 30*time.Second, 5*time.Millisecond, "it is in its handler")
				if end == "killed before" {
					require.NoError(t, s.pool.Kill(s.pool.InFlight()[0].PID))
				}
				result := <-hung
				require.True(t, result.Killed)
				require.NotNil(t, result.Error)
				if end == "killed before" {
					require.Equal(t, runtime.TypeExit, result.Error.Type)
				} else {
					require.Equal(t, runtime.TypeTimedOut, result.Error.Type)
				}
				require.True(t, childtest.Gone(result.PID))
				require.NoError(t, os.Remove(flag))

				another := order{id: "another", kind: kind}
				require.True(t, s.invoke(another).ColdStart)
				next := s.ended(another)
				require.Nil(t, next.Error, "the next invocation works")
				s.requireKept(another, next.Payload)

				after := s.ended(o)
				if kind == idem.NotRepeatable {
					require.NotNil(t, after.Error)
					require.Equal(t, "OutcomeUnknownError", after.Error.Type)
					require.Equal(t, idem.Unknown, s.record(o).State)
					again := s.ended(o)
					require.NotNil(t, again.Error)
					require.Equal(t, "OutcomeUnknownError", again.Error.Type)
					require.Len(t, s.booked(o), 1, "it never ran again")
					return
				}
				require.Nil(t, after.Error, "taken over")
				require.Equal(t, 2, s.record(o).Attempt)
				s.requireKept(o, after.Payload)
				require.Equal(t, string(after.Payload), string(s.ended(o).Payload))
			})
		}
	}
}

// timeout of a function that is killed at random: short, since the lease of
// a killed attempt runs until then.
const timeout = 2 * time.Second

// Instances are killed at random; a caller without an answer asks again.
func TestRandomKillsLoseNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	n := 75
	if os.Getenv("IDEM_LONG") == "1" {
		n = 1000
	}
	for name, c := range map[string]struct {
		fn runtime.Function
		o  runtime.Options
	}{
		"one at a time, frozen in between": {runtime.Function{MaxInstances: 4, Timeout: timeout}, runtime.Options{Freeze: true}},
		"four at once in a process":        {runtime.Function{MaxInstances: 2, Concurrency: 4, Timeout: timeout}, runtime.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, c.fn, &c.o)
			killing := faultnet.NewKills(12, faultnet.Caller(s.pool))
			s.network.Set(killing.Rule)
			answers, unknown, invocations, pids := s.askUntilEnded(n)

			s.network.Calm()
			kills := killing.Count()
			credits := 0
			for i := range n {
				o := orderOf(i)
				if answer, ok := answers[o]; ok {
					s.requireKept(o, answer)
					replay := s.ended(o)
					require.Nil(t, replay.Error)
					require.Equal(t, string(answer), string(replay.Payload))
					s.requireKept(o, answer)
					if o.kind == idem.Repeatable {
						credits++
					}
					continue
				}
				require.Equal(t, idem.NotRepeatable, o.kind, "a repeatable operation gets an answer in the end")
				require.True(t, unknown[o])
				require.Equal(t, idem.Unknown, s.record(o).State)
				require.LessOrEqual(t, len(s.booked(o)), 1, "%s ran again", o.id)
			}
			require.Equal(t, n-n/4, credits)
			t.Logf("%d invocations for %d orders, kills %v, %d answered, %d unknown", invocations, n, kills, len(answers), len(unknown))
			for _, moment := range faultnet.Moments {
				require.NotZero(t, kills[moment], moment)
			}
			if n >= 1000 {
				require.NotEmpty(t, unknown, "some not repeatable one was hit")
			}

			s.pool.Close()
			for pid := range pids {
				require.True(t, childtest.Gone(pid), "instance %d is left", pid)
			}
		})
	}
}

// orderOf is the i-th order; every fourth is not repeatable.
func orderOf(i int) order {
	o := order{id: fmt.Sprintf("order-%d", i), kind: idem.Repeatable}
	if i%4 == 3 {
		o.kind = idem.NotRepeatable
	}
	return o
}

// askUntilEnded makes n orders, and makes them again until each has an answer
// or is known to be unknown. Between the rounds every lease lapses.
func (s *setup) askUntilEnded(n int) (answers map[order][]byte, unknown map[order]bool, invocations int, pids map[int]bool) {
	var mu sync.Mutex
	answers, unknown, pids = map[order][]byte{}, map[order]bool{}, map[int]bool{}
	var open []order
	for i := range n {
		open = append(open, orderOf(i))
	}
	for round := 0; len(open) > 0; round++ {
		require.Less(s.t, round, 30, "it does not end: %v", open)
		if round > 0 {
			<-time.After(timeout + margin + 50*time.Millisecond)
		}
		work := make(chan order)
		var callers sync.WaitGroup
		var again []order
		for range 8 {
			callers.Go(func() {
				for o := range work {
					result, err := s.pool.Invoke(context.Background(), o.event(), nil)
					mu.Lock()
					invocations++
					pids[result.PID] = true
					switch {
					case err == nil && result.Error == nil:
						answers[o] = result.Payload
					case err == nil && result.Error.Type == "OutcomeUnknownError" && o.kind == idem.NotRepeatable:
						unknown[o] = true
					default:
						again = append(again, o)
					}
					mu.Unlock()
				}
			})
		}
		for _, o := range open {
			work <- o
		}
		close(work)
		callers.Wait()
		open = again
	}
	return answers, unknown, invocations, pids
}
