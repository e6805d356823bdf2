package idem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// calls makes n calls, each with a key of its own, and returns how often the store was asked.
func calls(t *testing.T, r *rig, op idem.Operation, n int) (asked int) {
	t.Helper()
	r.faults.Reset()
	for i := range n {
		_, err := idem.Do(t.Context(), r.engine, op.Key("t", time.Now().String()+string(rune('a'+i%26))), i, r.c.run)
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	}
	return len(r.faults.Calls())
}

// beat is a number of calls one after the other, and how many of them ask the store.
type beat struct {
	fault idemtest.Fault
	wait  time.Duration // before the calls
	calls int
	asked int
}

// While the store is down, calls fail closed at once, and one a second asks. Nothing runs until the first answer, which
// ends that. Failures count in a row, and not far apart: an answer in between, whichever, shows that the store works.
// A store that throttles can be reached, and its retries are rationed: of a hot key, or of a table that takes a part of
// the calls, no other call is to suffer. It closes no circuit either, nor does a call that has had no time to ask.
func TestStoreThatIsDownIsAskedOnceASecond(t *testing.T) {
	throttle := func(_ context.Context, c *idemtest.Call) error {
		return &protocol.StoreError{Op: string(c.Method), Down: true, Throttled: true, Err: errors.New("throttled")}
	}
	noTime := func(_ context.Context, c *idemtest.Call) error {
		return &protocol.StoreError{Op: string(c.Method), Err: context.DeadlineExceeded}
	}
	down := beat{idemtest.Refuse, 0, 5, 5}
	fourDown := beat{idemtest.Refuse, 0, 4, 4}
	asks := func(fault idemtest.Fault, times int) []beat {
		return slices.Repeat([]beat{{fault, time.Second, 100, 1}}, times)
	}
	for name, tc := range map[string]struct {
		beats    []beat
		reported []string
	}{
		"down": {slices.Concat([]beat{{idemtest.Refuse, 0, 100, 5}}, asks(idemtest.Refuse, 10),
			[]beat{{idemtest.Pass, time.Second, 3, 3}}), []string{"circuit_opened", "circuit_closed"}},
		"throttled":                 {[]beat{{throttle, 0, 100, 100}}, nil},
		"down, then throttled":      {append(asks(throttle, 3), beat{idemtest.Refuse, 0, 9, 0}), nil},
		"down, then no time to ask": {[]beat{{noTime, time.Second, 1, 1}, {idemtest.Refuse, 0, 9, 0}}, nil},
		"a success in between":      {slices.Repeat([]beat{fourDown, {idemtest.Pass, 0, 1, 1}}, 8), nil},
		"an answer in between":      {slices.Repeat([]beat{fourDown, {idemtest.Unreadable, 0, 1, 1}}, 8), nil},
		"far apart":                 {slices.Repeat([]beat{{idemtest.Refuse, 11 * time.Second, 1, 1}}, 20), nil},
	} {
		if strings.HasPrefix(name, "down, ") {
			tc.beats, tc.reported = append([]beat{down}, tc.beats...), []string{"circuit_opened"}
		}
		for _, op := range both {
			bubble(t, name+"/"+op.Name, func(t *testing.T) {
				r, passed := rigOver(t, memstore.New(), nil, nil), 0
				for n, b := range tc.beats {
					time.Sleep(b.wait)
					r.faults.Always(b.fault)
					r.faults.Reset()
					start := time.Now()
					for i := range b.calls {
						_, err := idem.Do(t.Context(), r.engine, op.Key("t", fmt.Sprint(n, ".", i)), 1, r.c.run)
						if err == nil {
							passed++
						}
					}
					require.Zero(t, time.Since(start), "it waits for nothing")
					require.Equal(t, b.asked, r.count(idemtest.Acquire), "beat %d", n)
				}
				require.Equal(t, passed, r.c.count())
				reported := r.events.take()
				reported = slices.DeleteFunc(reported, func(kind string) bool { return !strings.HasPrefix(kind, "circuit") })
				require.Equal(t, len(tc.reported), len(reported))
				require.Subset(t, reported, tc.reported)
				if last := tc.beats[len(tc.beats)-1]; last.asked > 0 {
					return
				}
				_, err := idem.Do(t.Context(), r.engine, op.Key("t", "k"), 1, r.c.run)
				require.ErrorContains(t, err, "not sent: 5 calls in a row or more have found the store down, the last one ")
				require.ErrorContains(t, err, "idemtest: refused")
				failed := errorAs[*idem.StoreError](t, err)
				require.True(t, failed.Down && !failed.Ambiguous)
			})
		}
	}
}

// The one that asks is alone for a second, and no call waits for it any longer: it may learn
// nothing, or never come back.
func TestOneCallAsksASecond(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{
		"silence":     idemtest.BlackHole,
		"it is stuck": func(_ context.Context, c *idemtest.Call) error { time.Sleep(time.Hour); return c.Lost() },
		"it panics":   func(context.Context, *idemtest.Call) error { panic(errPlain) },
	} {
		bubble(t, name, func(t *testing.T) {
			r := rigOver(t, memstore.New(), nil, nil)
			r.faults.Always(idemtest.Refuse)
			calls(t, r, safe, 5)
			time.Sleep(time.Second)
			r.faults.Always(fault)
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_, _ = idem.Do(t.Context(), r.engine, safe.Key("t", "asks"), 1, r.c.run)
			}()
			synctest.Wait()
			require.Zero(t, calls(t, r, safe, 10))
			r.faults.Heal()
			time.Sleep(2 * time.Second) // silence is a failure too, after a while
			must(t, r, safe.Key("t", "next"), r.c.run)
			<-done
		})
	}
}

// A process that was idle, or frozen, asks for every call, until one of them has failed.
func TestCircuitOfAnIdleProcessIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOver(t, memstore.New(), nil, nil)
		r.faults.Always(idemtest.Refuse)
		calls(t, r, safe, 5)
		time.Sleep(time.Hour)
		r.faults.Reset()
		r.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			time.Sleep(100 * time.Millisecond)
			return idemtest.Refuse(ctx, c)
		})
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() { try(t, r, safe.Key("t", string(rune('a'+n)))) })
		}
		all.Wait()
		require.Len(t, r.faults.Calls(), 10)
		require.Zero(t, calls(t, r, safe, 10))
		r.faults.Heal()
		time.Sleep(time.Second)
		r.events.take()
		must(t, r, safe.Key("t", "next"), r.c.run)
		require.Contains(t, r.events.take(), "circuit_closed")
	})
}

// What has run is written while the circuit is open, and its answer closes the circuit. What fails open runs at once.
func TestTheCircuitIsAroundClaimsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOver(t, memstore.New(), nil, nil)
		must(t, r, unsafe.Key("t", "runs"), func(ctx context.Context, _ int) (int, error) {
			r.faults.Always(idemtest.Refuse)
			require.Equal(t, 5, calls(t, r, safe, 20))
			r.faults.Reset()
			must(t, r, failsOpen.Key("t", "open"), new(counter).run)
			require.Empty(t, r.faults.Calls())
			r.faults.Heal() // the circuit stays open for a second
			require.Zero(t, calls(t, r, safe, 20))
			return idem.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil }, nil)
		})
		must(t, r, safe.Key("t", "k"), r.c.run) // the step's answer has closed it
	})
}

// Whatever call gets the first answer after an outage: no call is refused after it.
func TestTheFirstAnswerClosesTheCircuit(t *testing.T) {
	for name, answered := range map[string]func(t *testing.T, r *rig){
		"a replay": func(t *testing.T, r *rig) { try(t, r, safe.Key("t", "done")) },
		"a commit": func(t *testing.T, r *rig) { try(t, r, atomically.Key("t", "new")) },
		"a lookup": func(t *testing.T, r *rig) {
			_, err := r.engine.Lookup(t.Context(), safe.Key("t", "done"))
			require.NoError(t, err)
		},
		"what waited": func(t *testing.T, r *rig) { require.NoError(t, r.engine.Flush(t.Context())) },
	} {
		bubble(t, name, func(t *testing.T) {
			r := rigOver(t, memstore.New(), nil, nil)
			finished(t, r, safe.Key("t", "done"))
			must(t, r.inLambda(), safe.Key("t", "waits"), func(context.Context, int) (int, error) {
				r.faults.Always(idemtest.Refuse)
				return 1, nil
			})
			calls(t, r, safe, 10)
			r.faults.Heal()
			time.Sleep(time.Second)
			answered(t, r)
			for n := range 20 {
				must(t, r, safe.Key("t", string(rune('a'+n))), r.c.run)
			}
		})
	}
}

// A call in shadow does not wait for a store that is down, and runs.
func TestShadowDoesNotAskAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOver(t, memstore.New(), nil, nil)
		r.faults.Always(idemtest.BlackHole)
		start := time.Now()
		for n := range 100 {
			must(t, r, inShadow(safe).Key("t", string(rune('a'+n))), r.c.run)
		}
		require.Equal(t, 100, r.c.count())
		require.Less(t, time.Since(start), 10*time.Second)
	})
}

// slow answers after the delay, as a throttled store does, unless the context ends first.
func slow(d time.Duration, then idemtest.Fault) idemtest.Fault {
	return func(ctx context.Context, c *idemtest.Call) error {
		select {
		case <-ctx.Done():
			return idemtest.BlackHole(ctx, c)
		case <-time.After(d):
			return then(ctx, c)
		}
	}
}

// A store that is down, silent or slow before the claim: the call fails closed
// within its budget and the handler does not run.
func TestStoreDownBeforeTheClaim(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fault  idemtest.Fault
		ctx    func(t *testing.T) context.Context
		within time.Duration
		events []string
	}{
		{"refused", idemtest.Refuse, (*testing.T).Context, 0, []string{"store_unavailable"}},
		{"black hole", idemtest.BlackHole, (*testing.T).Context, time.Second,
			[]string{"outcome_queued", "store_unavailable"}},
		{"throttled", slow(300*time.Millisecond, idemtest.Refuse), (*testing.T).Context, 300 * time.Millisecond,
			[]string{"store_unavailable"}},
		{"slower than the budget", slow(10*time.Second, idemtest.Pass), (*testing.T).Context, time.Second,
			[]string{"outcome_queued", "store_unavailable"}},
		{"replies lost", idemtest.LoseRequest, (*testing.T).Context, 0, []string{"outcome_queued", "store_unavailable"}},
		{"little time left", idemtest.BlackHole, func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}, 100 * time.Millisecond, []string{"outcome_queued", "store_unavailable"}},
		{"a short function", idemtest.BlackHole, func(t *testing.T) context.Context {
			return idem.WithKillTime(t.Context(), time.Now().Add(2*time.Second))
		}, 500 * time.Millisecond, []string{"outcome_queued", "store_unavailable"}},
	} {
		for _, op := range both {
			testOn(t, tc.name+"/"+op.Name, op, func(t *testing.T, r *rig, key idem.Key) {
				r.faults.Always(tc.fault)
				start := time.Now()
				refused(t, r.in(tc.ctx(t)), key, idem.ErrStoreUnavailable, r.c.run)
				require.LessOrEqual(t, time.Since(start), tc.within)
				require.Equal(t, tc.events, r.events.take())
				require.Zero(t, r.c.count())

				// What waits from before must not eat the next call's budget.
				start = time.Now()
				refused(t, r.in(tc.ctx(t)), op.Key("t", "other"), idem.ErrStoreUnavailable, r.c.run)
				require.LessOrEqual(t, time.Since(start), time.Second)
				require.Zero(t, r.c.count())

				// Back again: nothing blocks the retry.
				r.faults.Heal()
				must(t, r, key, r.c.run)
				require.Equal(t, 1, r.c.count())
				require.NoError(t, r.engine.Flush(t.Context()))
			})
		}
	}
}
