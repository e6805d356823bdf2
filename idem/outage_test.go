package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// slow answers after the delay, as a throttled store does, unless the context
// ends first.
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
		{"black hole", idemtest.BlackHole, (*testing.T).Context, time.Second, []string{"outcome_queued", "store_unavailable"}},
		{"throttled", slow(300*time.Millisecond, idemtest.Refuse), (*testing.T).Context, 300 * time.Millisecond, []string{"store_unavailable"}},
		{"slower than the budget", slow(10*time.Second, idemtest.Pass), (*testing.T).Context, time.Second, []string{"outcome_queued", "store_unavailable"}},
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
			t.Run(tc.name+"/"+op.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, c := newRig(t, nil), new(counter)
					r.faults.Always(tc.fault)
					start := time.Now()
					_, err := idem.Do(tc.ctx(t), r.engine, op.Key("t", "k"), 1, c.run)
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
					require.LessOrEqual(t, time.Since(start), tc.within)
					require.Equal(t, tc.events, r.events.take())
					require.Zero(t, c.count())

					// What waits from before must not eat the next call's budget.
					start = time.Now()
					_, err = idem.Do(tc.ctx(t), r.engine, op.Key("t", "other"), 1, c.run)
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
					require.LessOrEqual(t, time.Since(start), time.Second)
					require.Zero(t, c.count())

					// Back again: nothing blocks the retry.
					r.faults.Heal()
					_, err = idem.Do(t.Context(), r.engine, op.Key("t", "k"), 1, c.run)
					require.NoError(t, err)
					require.Equal(t, 1, c.count())
					require.NoError(t, r.engine.Flush(t.Context()))
				})
			})
		}
	}
}

// held is a network: it keeps what it is given and delivers it when told.
type held struct{ calls []*idemtest.Call }

func (h *held) hold(apply bool) idemtest.Fault {
	return func(ctx context.Context, c *idemtest.Call) error {
		h.calls = append(h.calls, c)
		if apply {
			_ = c.Do(ctx)
		}
		return c.Lost()
	}
}

// All replies of a claim lost: the call fails, the retry is not blocked, and the
// claim delivered after the withdrawal changes nothing. The same for the claims
// that take over and that replace.
func TestClaimWithAllRepliesLost(t *testing.T) {
	day := 48 * time.Hour
	for _, tc := range []struct {
		name   string
		op     idem.Operation
		before func(*testing.T, *rig, idem.Key)
		nth    int // the claim that is lost, counted from 1
	}{
		{"create", unsafe, nil, 1},
		{"create, repeatable", safe, nil, 1},
		{"take over", safe, both2(killed, func(_ *testing.T, r *rig, _ idem.Key) { r.clock.Advance(day) }), 2},
		{"claim a released record", unsafe, released, 2},
		{"replace an expired", unsafe, both2(finished, func(_ *testing.T, r *rig, _ idem.Key) { r.clock.Advance(day) }), 2},
	} {
		for _, applied := range []bool{false, true} {
			name := tc.name + map[bool]string{true: ", applied", false: ", not applied"}[applied]
			setUp := func(t *testing.T) (*rig, *counter, idem.Key, *held) {
				r, key, net := newRig(t, nil), tc.op.Key("t", "k"), new(held)
				if tc.before != nil {
					tc.before(t, r, key)
				}
				r.events.take()
				for range tc.nth - 1 {
					r.faults.Next(idemtest.Acquire, idemtest.Pass)
				}
				r.faults.Next(idemtest.Acquire, net.hold(applied))
				return r, new(counter), key, net
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, c, key, net := setUp(t)
					_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
					require.Equal(t, []string{"withdrawn", "store_unavailable"}, r.events.take())
					require.Zero(t, c.count())
					withdrawn := r.record(t, key)
					require.Equal(t, idem.Released, withdrawn.State)

					require.Error(t, net.calls[0].Do(t.Context()), "the delayed claim comes too late")
					require.Equal(t, withdrawn, r.record(t, key))

					v, err := idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, c.run)
					require.NoError(t, err)
					require.Equal(t, 1, v)
					require.Error(t, net.calls[0].Do(t.Context()))
					require.Equal(t, idem.Completed, r.state(t, key))
					require.Equal(t, 1, c.count())
				})
			})
			t.Run(name+", and the withdrawal", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, c, key, net := setUp(t)
					r.faults.Next(idemtest.Withdraw, net.hold(false))
					_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
					require.Equal(t, []string{"outcome_queued", "store_unavailable"}, r.events.take())

					// The next call of the process takes it back first.
					v, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
					require.NoError(t, err)
					require.Equal(t, 1, v)
					require.Equal(t, []string{"outcome_landed", "took_over", "completed"}, r.events.take())
					done := r.record(t, key)
					require.Error(t, net.calls[0].Do(t.Context()), "the claim")
					require.NoError(t, net.calls[1].Do(t.Context()), "its withdrawal has landed, and was claimed over")
					require.Equal(t, done, r.record(t, key))
					require.Equal(t, 1, c.count())
				})
			})
		}
	}
}

// A takeover that was taken back leaves what it found: the attempt before it is
// still uncertain, and a stricter deployment parks it.
func TestWithdrawnTakeoverKeepsTheDoubt(t *testing.T) {
	r := newRig(t, nil)
	key, strict := safe.Key("t", "k"), safe
	killed(t, r, key)
	r.clock.Advance(time.Hour)
	r.faults.Next(idemtest.Acquire, idemtest.Pass, idemtest.LoseRequest)
	_, err := idem.Do(t.Context(), r.engine, key, 1, new(counter).run)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Equal(t, idem.Released, r.state(t, key))
	strict.Repeat = idem.NotRepeatable
	_, err = idem.Do(t.Context(), r.engine, strict.Key("t", "k"), 1, new(counter).run)
	require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
}

// What could not be written before must not eat the time of the next call's own
// claim.
func TestQueuedOutcomesLeaveTimeForTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.faults.Always(idemtest.BlackHole, idemtest.Finish)
		_, err := idem.Do(inLambda(t.Context()), r.engine, unsafe.Key("t", "1"), 1, new(counter).run)
		require.NoError(t, err)
		start := time.Now()
		_, err = idem.Do(t.Context(), r.engine, unsafe.Key("t", "2"), 1, func(context.Context, int) (int, error) {
			require.Less(t, time.Since(start), time.Second)
			r.faults.Heal()
			return 1, nil
		})
		require.NoError(t, err)
	})
}
