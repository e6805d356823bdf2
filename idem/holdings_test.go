package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// whileRunning calls fn from beside a handler of the key, which then returns 1.
func whileRunning(t *testing.T, r *rig, key idem.Key, fn func()) (int, error) {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	go func() {
		<-entered
		defer close(leave)
		fn()
	}()
	return idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
		close(entered)
		<-leave
		return 1, nil
	})
}

// A burst of duplicates costs the store nothing, and is told what the store would say.
func TestDuplicatesOfAHandlerOfThisProcessAreNotAskedAbout(t *testing.T) {
	for _, op := range both {
		bubbleOn(t, op.Name, op, func(t *testing.T, r *rig, key idem.Key) {
			c := new(counter)
			_, err := whileRunning(t, r, key, func() {
				time.Sleep(5*time.Minute + time.Second) // its lease has been renewed
				r.clock.Advance(time.Second)
				_, err := idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, c.run)
				var told, would *idem.InFlightError
				require.ErrorAs(t, err, &would)
				r.events.take()
				r.faults.Reset()
				for range 64 {
					_, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
					require.ErrorAs(t, err, &told)
					require.Equal(t, would, told)
				}
				require.Empty(t, r.faults.Calls())
				require.Len(t, r.events.take(), 64, "in_flight each")
			})
			require.NoError(t, err)
			require.Zero(t, c.count())
			require.Equal(t, 1, must(t, r, key, c.run))
		})
	}
}

// A call that waits reads the outcome as before.
func TestDuplicateThatWaitsForAHandlerOfThisProcessGetsItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRig(t, &idem.Options{Wait: 10 * time.Second}), new(counter)
		waited := make(chan int, 1)
		_, err := whileRunning(t, r, unsafe.Key("t", "k"), func() {
			r.faults.Reset()
			go func() {
				got := must(t, r, unsafe.Key("t", "k"), c.run)
				waited <- got
			}()
			time.Sleep(time.Second)
			require.NotContains(t, r.faults.Calls(), idemtest.Acquire)
		})
		require.NoError(t, err)
		require.Equal(t, 1, <-waited)
		require.Zero(t, c.count())
	})
}

// What this process does not know for certain, it asks.
func TestStoreIsAskedWhereTheClaimIsNotCertain(t *testing.T) {
	ask := func(t *testing.T, r *rig, key idem.Key, in int, want error) {
		t.Helper()
		r.faults.Reset()
		_, err := idem.Do(t.Context(), r.engine, key, in, fails(errPlain))
		require.ErrorIs(t, err, want)
		require.NotEmpty(t, r.faults.Calls())
	}
	key := safe.Key("t", "k")
	for name, play := range map[string]func(t *testing.T, r *rig){
		"another input": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, key, func() { ask(t, r, key, 2, idem.ErrKeyReused) })
		},
		"another key": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, key, func() { ask(t, r, safe.Key("u", "k"), 1, errPlain) })
		},
		"in shadow": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, inShadow(safe).Key("t", "k"), func() { ask(t, r, key, 1, errPlain) })
			_, _ = whileRunning(t, r, safe.Key("t", "other"),
				func() { ask(t, r, inShadow(safe).Key("t", "other"), 1, errPlain) })
		},
		"in atomic mode, without a claim": func(t *testing.T, r *rig) {
			key := atomically.Key("t", "k")
			_, _ = whileRunning(t, r, key, func() { ask(t, r, key, 1, errPlain) })
		},
		"failed open, without a claim": func(t *testing.T, r *rig) {
			key := failsOpen.Key("t", "k")
			r.faults.Next(idemtest.Acquire, idemtest.Refuse)
			_, _ = whileRunning(t, r, key, func() { ask(t, r, key, 1, errPlain) })
		},
		"the lease is over by the engine's clock": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, key, func() {
				r.clock.Advance(idem.DefaultLease)
				ask(t, r, key, 1, idem.ErrInFlight) // within the margin
			})
		},
		"the lease was lost": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, key, func() {
				r.clock.Advance(time.Hour)
				finished(t, r.elsewhere(t), key)
				time.Sleep(idem.DefaultLease)
				r.clock.Advance(-time.Hour)
				r.faults.Reset()
				_, err := idem.Do(t.Context(), r.engine, key, 1, fails(errPlain))
				require.NoError(t, err, "it is completed")
				require.NotEmpty(t, r.faults.Calls())
			})
		},
		"the handler has returned": func(t *testing.T, r *rig) {
			r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
				ask(t, r, key, 1, idem.ErrInFlight)
				return c.Do(ctx)
			})
			finished(t, r, key)
		},
		"the handler has panicked": func(t *testing.T, r *rig) {
			func() {
				defer func() { _ = recover() }()
				_, _ = idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) { panic("x") })
			}()
			ask(t, r, key, 1, errPlain)
		},
		"it is parked from the side": func(t *testing.T, r *rig) {
			key := unsafe.Key("t", "k")
			ctx := idem.WithKillTime(t.Context(), time.Now().Add(10*time.Second))
			_, _ = idem.Do(ctx, r.engine, key, 1, func(context.Context, int) (int, error) {
				time.Sleep(9900 * time.Millisecond)
				ask(t, r, key, 1, idem.ErrOutcomeUnknown)
				return 1, nil
			})
		},
	} {
		bubble(t, name, func(t *testing.T) { play(t, newRig(t, nil)) })
	}
}

// A duplicate whose claim got no answer is in flight if another call of this process has the
// key: its claim cannot land over that one, now or later, and is not taken back.
func TestClaimWithoutAnswerBesideAHandlerOfThisProcessIsInFlight(t *testing.T) {
	for name, tc := range map[string]struct {
		own, holder time.Duration // retention
		want        []string
	}{
		"its record stays":                     {0, 0, []string{"in_flight"}},
		"its record goes soon":                 {time.Minute, time.Minute, []string{"withdrawn", "store_unavailable"}},
		"its record alone goes soon":           {0, time.Minute, []string{"withdrawn", "store_unavailable"}},
		"it stays for longer than another one": {time.Minute, 0, []string{"in_flight"}},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, nil)
			op := safe
			op.Retention = tc.own
			key := op.Key("t", "k")
			op.Retention = tc.holder
			holder := op.Key("t", "k")
			sent, late := make(chan struct{}), (*idemtest.Call)(nil)
			holds := make(chan struct{})
			r.faults.Next(idemtest.Acquire, func(_ context.Context, c *idemtest.Call) error {
				late = c
				close(sent)
				<-holds
				return c.Lost()
			})
			answered := make(chan error, 1)
			go func() {
				_, err := idem.Do(t.Context(), r.engine, key, 1, fails(errPlain))
				answered <- err
			}()
			<-sent
			r.events.take()
			got, err := whileRunning(t, r, holder, func() {
				r.events.take()
				close(holds)
				require.Error(t, <-answered)
				require.Equal(t, tc.want, r.events.take())
				require.ErrorAs(t, late.Do(t.Context()), new(*protocol.ConflictError))
			})
			require.NoError(t, err)
			require.Equal(t, 1, got)
			require.Error(t, late.Do(t.Context()))
		})
	}
}
