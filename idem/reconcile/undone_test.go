package reconcile_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// The third step has failed for good and what the others did is being undone when the
// process dies. The provider still has the charge: that is no success.
func TestWhatIsBeingUndoneIsNotCompleted(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil },
				&idem.StepConfig[string]{Compensate: func(context.Context, string) error {
					r.Crash()
					return nil
				}})
			require.NoError(t, err)
			return 0, idem.Permanent(errors.New("sold out"))
		})
	})
	r.Restart()
	r.lapse()
	s := r.asking(says(reconcile.CompletedWith(1)))
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	require.Equal(t, idem.Unknown, r.Record(key).State)
	by := reconcile.Change{Actor: "alice", Reason: "the provider has it"}
	var refused *reconcile.NotUndoneError
	require.ErrorAs(t, reconcile.Resolve(t.Context(), r.reconciler(), key, 1, by), &refused)
	require.Equal(t, &reconcile.NotUndoneError{To: idem.Completed, Steps: []string{"charge"}}, refused)
	require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Released}, by), "the next attempt goes on")
}

// All of it has been undone when the process dies, before the failure is recorded. The
// provider remembers the charge, and not that it was returned.
func TestWhatHasBeenUndoneIsNotCompletedByAProbe(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil },
				&idem.StepConfig[string]{Compensate: func(context.Context, string) error { return nil }})
			require.NoError(t, err)
			require.NoError(t, idem.Abort(ctx, errors.New("sold out")))
			r.Crash()
			return 0, nil
		})
	})
	r.Restart()
	r.lapse()
	s := r.asking(says(reconcile.CompletedWith(1)))
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	require.Equal(t, idem.Unknown, r.Record(key).State)
	require.Contains(t, r.escalations[0].Reason, `what the steps ["charge"] did has been undone`)

	// Nor by a person or a webhook that brings the provider's word.
	rc, before := r.reconciler(), r.Record(key)
	var refused *reconcile.NotUndoneError
	require.ErrorAs(t, reconcile.Resolve(t.Context(), rc, key, 1, alice), &refused)
	require.Equal(t, &reconcile.NotUndoneError{To: idem.Completed, Undone: []string{"charge"}}, refused)
	require.ErrorContains(t, refused, "set Resolution.CompensatedManually")
	require.Equal(t, before, r.Record(key))

	// Who means the response of the refusal says so.
	refusal, err := reconcile.Encode(402)
	require.NoError(t, err)
	res := reconcile.Resolution{To: idem.Completed, Result: &refusal, CompensatedManually: true}
	require.Equal(t, []string{"charge"}, rc.Preview(before, res).Undo)
	require.NoError(t, rc.Resolve(t.Context(), key.ID(), res, alice))
	require.Equal(t, map[string]protocol.StepVerdict{"charge": protocol.StepUndone}, r.last(key).Steps)
	out, err := r.call(key, nil2)
	require.NoError(t, err)
	require.Equal(t, 402, out)
}

// What took effect has nothing undone.
func TestWhatIsNotBeingUndoneIsNotCompletedAsUndone(t *testing.T) {
	r, key := newRig(t), order.Key("acme", "o-1")
	r.diedCharging(key)
	err := r.reconciler().Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed, CompensatedManually: true}, alice)
	require.ErrorContains(t, err, "the operation is not being undone")
}

// A handler that answers with a refusal has its steps undone. One that is recorded as the result
// would leave the charge, and tell the client that it was declined.
func TestARefusalIsNotRecordedOverStepsThatAreNotUndone(t *testing.T) {
	key := refund.Key("acme", "r-1")
	died := func(t *testing.T) *rig {
		r := newRig(t)
		_, err := r.call(key, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil },
				&idem.StepConfig[string]{Compensate: func(context.Context, string) error { return nil }})
			require.NoError(t, err)
			return 0, errPlain
		})
		require.ErrorIs(t, err, errPlain)
		r.lapse()
		return r
	}
	refusal, err := reconcile.Encode(402)
	require.NoError(t, err)
	refusal.Failed = true
	t.Run("by a person", func(t *testing.T) {
		r := died(t)
		rc, before := r.reconciler(), r.Record(key)
		res := reconcile.Resolution{To: idem.Completed, Result: &refusal}
		var refused *reconcile.NotUndoneError
		require.ErrorAs(t, rc.Resolve(t.Context(), key.ID(), res, alice), &refused)
		require.Equal(t, &reconcile.NotUndoneError{To: idem.Failed, Steps: []string{"charge"}}, refused)
		require.Equal(t, before, r.Record(key))
		require.Equal(t, []string{"charge"}, rc.Preview(before, res).Undo)
		res.CompensatedManually = true
		require.NoError(t, rc.Resolve(t.Context(), key.ID(), res, alice))
		require.Equal(t, map[string]protocol.StepVerdict{"charge": protocol.StepUndone}, r.last(key).Steps)
		out, err := r.call(key, nil2)
		require.NoError(t, err)
		require.Equal(t, 402, out)
	})
	t.Run("by a probe", func(t *testing.T) {
		r := died(t)
		require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(r.asking(says(reconcile.CompletedWithEncoded(refusal)))))
		require.Equal(t, idem.Unknown, r.Record(key).State)
		require.Contains(t, r.escalations[0].Reason, `["charge"]: undo them by hand`)
	})
	t.Run("nothing to undo", func(t *testing.T) {
		r := newRig(t)
		r.killed(key)
		r.lapse()
		require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed, Result: &refusal}, alice))
	})
}
