package reconcile_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
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
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.GivenUp}, r.sweep(s))
	require.Equal(t, idem.Unknown, r.Record(key).State)
	by := reconcile.By{Who: "alice", Why: "the provider has it"}
	require.ErrorIs(t, reconcile.Resolve(t.Context(), r.reconciler(), key, 1, by), reconcile.ErrNotUndone)
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
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.GivenUp}, r.sweep(s))
	require.Equal(t, idem.Unknown, r.Record(key).State)
}
