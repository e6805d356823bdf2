package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// The attempt that parked itself runs on to its lease's end: what the provider says before
// that does not hold any more when its answer arrives after it.
func TestAnAnswerFromBeforeTheLeasesEndReleasesNothing(t *testing.T) {
	r := newRig(t)
	key := refund.Key("acme", "r-1")
	r.killed(key)
	rec := r.Record(key)
	require.NoError(t, r.Store.Finish(t.Context(), r.Clock.Now().Truncate(time.Millisecond), protocol.Finish{
		ID: rec.ID, Owner: rec.Owner, Write: "park", Watched: true, Ending: protocol.Ending{State: idem.Unknown, Uncertain: true},
	}))
	asked := 0
	s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
		if asked++; asked == 1 {
			r.lapse() // the answer takes its time
		}
		return reconcile.NotExecuted(), nil
	})
	require.Equal(t, []notice.Kind{notice.SweepPostponed}, r.sweep(s))
	require.Equal(t, idem.Unknown, r.Record(key).State)
	require.Equal(t, []notice.Kind{notice.Resolved}, r.sweep(s))
	require.Equal(t, 2, asked)
	require.Equal(t, idem.Released, r.Record(key).State)
}

// Somebody finds out that an attempt had no effect. Before that is said, another one has
// run, and of that one it does not hold.
func TestAResolutionIsAboutTheAttemptThatItNames(t *testing.T) {
	r := newRig(t)
	key := refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	by := reconcile.Change{Actor: "alice", Reason: "the provider's console says so"}
	first := reconcile.Resolution{To: idem.Released, Attempt: r.Record(key).Attempt}
	require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), first, by))
	r.killed(key)
	r.lapse()
	require.ErrorIs(t, r.reconciler().Resolve(t.Context(), key.ID(), first, by), reconcile.ErrNotUnknown)
	require.Equal(t, idem.InProgress, r.Record(key).State)
	first.Attempt++
	require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), first, by))
	require.Equal(t, idem.Released, r.Record(key).State)
}

// Somebody has found out that the attempt was declined. While that is being written another
// one says that it had no effect, and a call runs again, takes effect and does not know it.
func TestAResolutionIsAboutTheAttemptThatItFound(t *testing.T) {
	r := newRig(t)
	key := refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	by := reconcile.Change{Actor: "alice", Reason: "the provider's console says so"}
	r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		require.NoError(t, r.reconciler().Resolve(ctx, key.ID(), reconcile.Resolution{To: idem.Released}, reconcile.Change{Actor: "webhook", Reason: "charge.failed"}))
		_, err := r.call(key, func(context.Context, int) (int, error) { return 0, errPlain })
		require.ErrorIs(t, err, errPlain)
		return c.Do(ctx)
	})
	declined := reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}}
	require.ErrorIs(t, r.reconciler().Resolve(t.Context(), key.ID(), declined, by), reconcile.ErrNotUnknown)
	require.Equal(t, idem.Unknown, r.Record(key).State)
	require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), declined, by), "asked once more about the new attempt")
}
