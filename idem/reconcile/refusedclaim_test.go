package reconcile_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// diedCharging leaves an order whose process died in its at-most-once charge, after a step
// that has a compensation. Its lease is over.
func (r *rig) diedCharging(key idem.Key) {
	r.t.Helper()
	d := idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, shopping(new(orderEffects), r.Crash))
	})
	require.ErrorIs(r.t, d[0].Err, idemtest.ErrCrashed)
	r.Restart()
	r.lapse()
}

// A resolution that is refused leaves a lapsed claim as it is: the next call goes on with it,
// and nobody has decided anything.
func TestARefusedResolutionLeavesTheClaim(t *testing.T) {
	key := order.Key("acme", "o-1")
	seven, err := reconcile.Encode(7)
	require.NoError(t, err)
	tooLarge := func(context.Context, *idemtest.Call) error { return &protocol.TooLargeError{Size: 4, Limit: 3} }
	for name, tc := range map[string]struct {
		res   reconcile.Resolution
		store idemtest.Fault
		want  any
	}{
		"steps are not undone":    {reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}}, idemtest.Pass, reconcile.ErrNotUndone},
		"about another attempt":   {reconcile.Resolution{To: idem.Released, Attempt: 7}, idemtest.Pass, reconcile.ErrNotUnknown},
		"encoded for other calls": {reconcile.Resolution{To: idem.Completed, Result: &protocol.Encoded{Codec: "http", Check: func([]byte) error { return nil }}}, idemtest.Pass, new(*idem.ConfigError)},
		"too large for the store": {reconcile.Resolution{To: idem.Completed, Result: &seven}, tooLarge, new(*protocol.TooLargeError)},
		"to nothing":              {reconcile.Resolution{To: idem.Unknown}, idemtest.Pass, new(*idem.ConfigError)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.diedCharging(key)
			before := r.Record(key)
			by := r.seen(key)
			r.Faults.Next(idemtest.Settle, tc.store)
			err := r.reconciler().Resolve(t.Context(), key.ID(), tc.res, by)
			r.Faults.Heal()
			if sentinel, ok := tc.want.(error); ok {
				require.ErrorIs(t, err, sentinel)
			} else {
				require.ErrorAs(t, err, tc.want)
			}
			require.Equal(t, before, r.Record(key))
			require.Empty(t, r.changes(key))

			s := new(orderEffects)
			_, err = r.call(key, shopping(s, func() {}))
			require.NoError(t, err)
			require.Equal(t, &orderEffects{shipped: 1, asked: 1}, s)

			r = newRig(t)
			r.diedCharging(key)
			by = r.seen(key)
			r.Faults.Next(idemtest.Settle, tc.store)
			require.Error(t, r.reconciler().Resolve(t.Context(), key.ID(), tc.res, by))
			r.Faults.Heal()
			require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), charged(reconcile.NotExecuted()), by), "the same look still counts")
		})
	}
}

// The reply is lost, or somebody else writes first: a lapsed claim has one outcome, and the
// change is told once.
func TestALapsedClaimIsResolvedInOneWrite(t *testing.T) {
	key := refund.Key("acme", "r-1")
	released := reconcile.Resolution{To: idem.Released}
	for name, tc := range map[string]struct {
		fault idemtest.Fault
		seen  bool
	}{
		"it lands": {idemtest.Pass, true}, "its reply is lost": {idemtest.LoseReply, true}, "its reply is lost, and nothing was seen": {idemtest.LoseReply, false},
		"its request is lost": {idemtest.LoseRequest, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.killed(key)
			r.lapse()
			by := alice
			if tc.seen {
				by = r.seen(key)
			}
			r.Faults.Next(idemtest.Settle, tc.fault)
			require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), released, by))
			require.Equal(t, idem.Released, r.Record(key).State)
			require.Equal(t, []protocol.Change{protocol.ChangeResolved}, r.changes(key))
		})
	}
	for name, rival := range map[string]func(r *rig){
		"a sweep parks it": func(r *rig) { r.sweep(r.sweeper(reconcile.SweepOptions{})) },
		"a call parks it":  func(r *rig) { _, err := r.call(key, nil2); require.ErrorIs(r.t, err, idem.ErrOutcomeUnknown) },
		"its attempt renews the lease": func(r *rig) {
			rec := r.Record(key)
			require.NoError(r.t, r.Store.Extend(r.t.Context(), r.Clock.Now(), protocol.Extension{
				ID: rec.ID, Owner: rec.Owner, Write: "renewal", LeaseUntil: r.Clock.Now().Add(idem.DefaultLease),
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.killed(key)
			r.lapse()
			by := r.seen(key)
			var after *idem.Record
			r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
				rival(r)
				after = r.Record(key)
				return c.Do(ctx)
			})
			require.ErrorIs(t, r.reconciler().Resolve(t.Context(), key.ID(), released, by), reconcile.ErrChanged)
			require.Equal(t, after, r.Record(key))
		})
	}
}

func nil2(context.Context, int) (int, error) { panic("it must not run") }

// OnAbandoned says what becomes of work that goes on, and nothing of what is unknown.
func TestAnUnknownOutcomeWithoutProbeGoesToPeopleSoon(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{
		Operation: refund, OnAbandoned: func(context.Context, reconcile.Question) error { return nil },
	}}})
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.SweepPostponed}, r.sweep(s))
	require.Equal(t, r.Record(key).OpenSince.Add(reconcile.DefaultEscalateAfter), r.Record(key).Due)
	r.Clock.Advance(reconcile.DefaultEscalateAfter)
	require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
}
