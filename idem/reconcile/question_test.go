package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// swept sweeps three times within minutes.
func (r *rig) swept(s *reconcile.Sweeper) {
	r.t.Helper()
	for range 3 {
		r.sweep(s)
		r.Clock.Advance(2 * time.Minute)
	}
}

// aged sweeps until the question is long past the age at which people get it.
func (r *rig) aged(s *reconcile.Sweeper) {
	r.t.Helper()
	for range 4 {
		r.Clock.Advance(5 * time.Hour)
		r.sweep(s)
	}
	require.Len(r.t, r.escalations, 1)
}

// stepThenPlain records a step and ends with an error that leaves no outcome.
func stepThenPlain(ctx context.Context, n int) (int, error) {
	if _, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 1, nil }, nil); err != nil {
		return 0, err
	}
	return 0, errPlain
}

// People say that it had no effect. The steps are still to be gone on with: that is a new
// question, which gets its time and a message of its own.
func TestAnAnsweredQuestionIsNotLeftToPeopleAgain(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	told := 0
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{
		Operation: refund, OnAbandoned: func(context.Context, reconcile.Question) error { told++; return nil },
	}}})
	_, err := r.call(key, stepThenPlain)
	require.ErrorIs(t, err, errPlain)
	require.Equal(t, idem.Unknown, r.Record(key).State)
	r.aged(s)
	by := reconcile.Change{Actor: "alice", Reason: "the provider's console says so"}
	require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Released}, by))
	r.swept(s)
	require.Len(t, r.escalations, 1, "they have answered minutes ago")
	require.Positive(t, told)
	for range 8 {
		r.Clock.Advance(5 * time.Hour)
		r.sweep(s)
	}
	require.Len(t, r.escalations, 2, "it is abandoned for good")
	require.NotEqual(t, r.escalations[0].Message, r.escalations[1].Message)
}

// The attempt that a sweep has parked says by itself that nobody knows, long after people
// got the question.
func TestALateEndDoesNotLeaveTheQuestionToPeopleAgain(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	s := r.sweeper(reconcile.SweepOptions{})
	_, err := r.call(key, func(context.Context, int) (int, error) {
		r.aged(s)
		return 0, errPlain
	})
	require.Error(t, err)
	require.NotNil(t, r.Record(key).Failure, "the end was recorded")
	r.swept(s)
	require.Len(t, r.escalations, 1)
	require.False(t, r.Record(key).EscalatedAt.IsZero())
}

// A call goes on with the work, but its claim is lost on the way and is taken back.
func TestALostClaimDoesNotLeaveTheQuestionToPeopleAgain(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "r-1")
	s := r.sweeper(reconcile.SweepOptions{})
	_, err := r.call(key, stepThenPlain)
	require.ErrorIs(t, err, errPlain)
	r.aged(s)
	r.Faults.Always(idemtest.LoseRequest, idemtest.Acquire)
	_, err = r.call(key, stepThenPlain)
	require.Error(t, err)
	r.Faults.Heal()
	r.swept(s)
	require.Len(t, r.escalations, 1)
}
