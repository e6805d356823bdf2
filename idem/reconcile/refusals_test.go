package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// Whoever is refused is told what to do.
func TestRefusalsSayWhatToDo(t *testing.T) {
	r := newRig(t)
	rc, by, key := r.reconciler(), reconcile.Change{Actor: "alice", Reason: "test"}, refund.Key("acme", "r-1")
	_, err := r.call(key, func(context.Context, int) (int, error) { return 0, errPlain })
	require.Same(t, errPlain, err)
	rec := r.Record(key)
	require.Equal(t, idem.Unknown, rec.State)

	err = rc.Forget(t.Context(), key.ID(), by)
	require.ErrorIs(t, err, reconcile.ErrOpen)
	require.ErrorContains(t, err, "this one is unknown: resolve it first")

	err = rc.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Released}, by)
	require.ErrorIs(t, err, reconcile.ErrTooEarly)
	require.ErrorContains(t, err, "which is over at "+rec.LeaseUntil.Add(idem.DefaultMargin).Format(time.RFC3339Nano))

	require.NoError(t, reconcile.Resolve(t.Context(), rc, key, 7, by))
	err = reconcile.Resolve(t.Context(), rc, key, 8, by)
	require.ErrorIs(t, err, reconcile.ErrNotUnknown)
	require.ErrorContains(t, err, "resolved as completed before: set Resolution.Replace")
	again := reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "no"}, Replace: true}
	require.ErrorContains(t, rc.Resolve(t.Context(), key.ID(), again, by), "Replace is set, and Change.IfWrite is empty")
	require.NoError(t, rc.Resolve(t.Context(), key.ID(), again, r.seen(key)))
}
