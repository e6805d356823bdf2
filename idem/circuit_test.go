package idem_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// calls makes n calls, each with a key of its own, and returns how often the store was asked.
func calls(t *testing.T, r *rig, op idem.Operation, n int, c *counter) (asked int) {
	t.Helper()
	r.faults.Reset()
	for i := range n {
		_, err := idem.Do(t.Context(), r.engine, op.Key("t", time.Now().String()+string(rune('a'+i%26))), i, c.run)
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	}
	return len(r.faults.Calls())
}

// While the store is down, calls fail closed at once, and one a second asks. Nothing runs
// until the first answer, which ends that.
func TestStoreThatIsDownIsAskedOnceASecond(t *testing.T) {
	for _, op := range both {
		t.Run(op.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c := newCircuitRig(t), new(counter)
				r.faults.Always(idemtest.Refuse)
				require.Equal(t, 5, calls(t, r, op, 100, c))
				start := time.Now()
				_, err := idem.Do(t.Context(), r.engine, op.Key("t", "k"), 1, c.run)
				require.Zero(t, time.Since(start), "it waits for nothing")
				require.ErrorContains(t, err, "not sent: 5 calls in a row or more have found the store down, the last one 0s ago")
				require.ErrorContains(t, err, "idemtest: refused")
				var failed *idem.StoreError
				require.ErrorAs(t, err, &failed)
				require.True(t, failed.Down && !failed.Ambiguous)
				for range 10 {
					time.Sleep(time.Second)
					require.Equal(t, 1, calls(t, r, op, 100, c))
				}
				require.Zero(t, c.count())
				r.events.take()

				r.faults.Heal()
				time.Sleep(time.Second)
				for n := range 3 {
					_, err := idem.Do(t.Context(), r.engine, op.Key("t", "k"+string(rune('a'+n))), 1, c.run)
					require.NoError(t, err)
				}
				require.Equal(t, 3, c.count())
				require.Contains(t, r.events.take(), "circuit_closed")
			})
		})
	}
}

// The one that asks is alone for a second, and nobody waits for it any longer: it may learn
// nothing, or never come back.
func TestOneCallAsksASecond(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{
		"silence":     idemtest.BlackHole,
		"it is stuck": func(_ context.Context, c *idemtest.Call) error { time.Sleep(time.Hour); return c.Lost() },
		"it panics":   func(context.Context, *idemtest.Call) error { panic(errPlain) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c := newCircuitRig(t), new(counter)
				r.faults.Always(idemtest.Refuse)
				calls(t, r, safe, 5, c)
				time.Sleep(time.Second)
				r.faults.Always(fault)
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_, _ = idem.Do(t.Context(), r.engine, safe.Key("t", "asks"), 1, c.run)
				}()
				synctest.Wait()
				require.Zero(t, calls(t, r, safe, 10, c))
				r.faults.Heal()
				time.Sleep(2 * time.Second) // silence is a failure too, after a while
				_, err := idem.Do(t.Context(), r.engine, safe.Key("t", "next"), 1, c.run)
				require.NoError(t, err)
				<-done
			})
		})
	}
}

// One that has had no time to ask has learnt nothing either.
func TestCallWithoutTimeDoesNotCloseTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCircuitRig(t), new(counter)
		r.faults.Always(idemtest.Refuse)
		calls(t, r, safe, 5, c)
		r.events.take()
		time.Sleep(time.Second)
		r.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			return &protocol.StoreError{Op: string(c.Method), Err: context.DeadlineExceeded}
		})
		try(t, r, safe.Key("t", "asks"))
		require.NotContains(t, r.events.take(), "circuit_closed")
	})
}

// A process that was idle, or frozen, asks for every call, until one of them has failed.
func TestCircuitOfAnIdleProcessIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCircuitRig(t), new(counter)
		r.faults.Always(idemtest.Refuse)
		calls(t, r, safe, 5, c)
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
		require.Zero(t, calls(t, r, safe, 10, c))
		r.faults.Heal()
		time.Sleep(time.Second)
		r.events.take()
		_, err := idem.Do(t.Context(), r.engine, safe.Key("t", "next"), 1, c.run)
		require.NoError(t, err)
		require.Contains(t, r.events.take(), "circuit_closed")
	})
}

// A store that throttles can be reached, and its retries are rationed: of a hot key, or of a
// table that takes a part of the calls, nobody else is to suffer. It closes no circuit either.
func TestThrottlingDoesNotOpenTheCircuit(t *testing.T) {
	throttle := func(_ context.Context, c *idemtest.Call) error {
		return &protocol.StoreError{Op: string(c.Method), Down: true, Throttled: true, Err: errors.New("throttled")}
	}
	synctest.Test(t, func(t *testing.T) {
		r, c := newCircuitRig(t), new(counter)
		r.faults.Always(throttle)
		require.Equal(t, 100, calls(t, r, safe, 100, c))
		require.NotContains(t, r.events.take(), "circuit_opened")

		r.faults.Always(idemtest.Refuse)
		calls(t, r, safe, 5, c)
		r.faults.Always(throttle)
		for range 3 {
			time.Sleep(time.Second)
			require.Equal(t, 1, calls(t, r, safe, 100, c))
		}
		require.NotContains(t, r.events.take(), "circuit_closed")
	})
}

// Failures count in a row: an answer in between, whichever, shows that the store works.
func TestAnAnswerInBetweenKeepsTheCircuitClosed(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"success": idemtest.Pass, "unreadable": idemtest.Unreadable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newCircuitRig(t)
				for n := range 40 {
					if n%5 == 4 {
						r.faults.Always(fault)
					} else {
						r.faults.Always(idemtest.Refuse)
					}
					try(t, r, safe.Key("t", string(rune('a'+n))))
				}
				require.NotContains(t, r.events.take(), "circuit_opened")
			})
		})
	}
}

// Failures that are far apart say nothing of now.
func TestFailuresThatAreFarApartDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCircuitRig(t)
		r.faults.Always(idemtest.Refuse)
		for range 20 {
			try(t, r, safe.Key("t", "k"))
			time.Sleep(11 * time.Second)
		}
		require.NotContains(t, r.events.take(), "circuit_opened")
	})
}

// What has run is written while the circuit is open, and its answer closes the circuit. What fails
// open runs at once.
func TestTheCircuitIsAroundClaimsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCircuitRig(t), new(counter)
		_, err := idem.Do(t.Context(), r.engine, unsafe.Key("t", "runs"), 1, func(ctx context.Context, _ int) (int, error) {
			r.faults.Always(idemtest.Refuse)
			require.Equal(t, 5, calls(t, r, safe, 20, c))
			r.faults.Reset()
			_, err := idem.Do(t.Context(), r.engine, failsOpen.Key("t", "open"), 1, new(counter).run)
			require.NoError(t, err)
			require.Empty(t, r.faults.Calls())
			r.faults.Heal() // the circuit stays open for a second
			require.Zero(t, calls(t, r, safe, 20, c))
			return idem.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil }, nil)
		})
		require.NoError(t, err)
		_, err = idem.Do(t.Context(), r.engine, safe.Key("t", "k"), 1, c.run)
		require.NoError(t, err, "the step's answer has closed it")
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c := newCircuitRig(t), new(counter)
				finished(t, r, safe.Key("t", "done"))
				_, err := idem.Do(inLambda(t.Context()), r.engine, safe.Key("t", "waits"), 1, func(context.Context, int) (int, error) {
					r.faults.Always(idemtest.Refuse)
					return 1, nil
				})
				require.NoError(t, err)
				calls(t, r, safe, 10, c)
				r.faults.Heal()
				time.Sleep(time.Second)
				answered(t, r)
				for n := range 20 {
					_, err := idem.Do(t.Context(), r.engine, safe.Key("t", string(rune('a'+n))), 1, c.run)
					require.NoError(t, err)
				}
			})
		})
	}
}

// A call in shadow does not wait for a store that is down, and runs.
func TestShadowDoesNotAskAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCircuitRig(t), new(counter)
		r.faults.Always(idemtest.BlackHole)
		start := time.Now()
		for n := range 100 {
			_, err := idem.Do(t.Context(), r.engine, inShadow(safe).Key("t", string(rune('a'+n))), 1, c.run)
			require.NoError(t, err)
		}
		require.Equal(t, 100, c.count())
		require.Less(t, time.Since(start), 10*time.Second)
	})
}
