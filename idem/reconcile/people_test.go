package reconcile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// The charge took effect, somebody has said so, and the client never calls again. What people are
// told to do about it can be done.
func TestPeopleCanEndWhatNobodyCallsFor(t *testing.T) {
	r, key := newRig(t), order.Key("acme", "o-1")
	r.diedCharging(key)
	rc := r.reconciler()
	require.NoError(t, rc.Resolve(t.Context(), key.ID(), charged(reconcile.CompletedWith(7)), alice))
	s := r.sweeper(reconcile.SweepOptions{})
	r.Clock.Advance(time.Hour)
	require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
	require.Equal(t, idem.Released, r.escalations[0].State)
	require.Empty(t, r.escalations[0].Steps, "nothing is left to ask about")
	for _, way := range []string{"have the client send it again", "OnAbandoned", "idemctl resolve --again"} {
		require.Contains(t, r.escalations[0].Help, way)
	}
	r.over(key, reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "returned by hand"}, CompensatedManually: true})
	require.Equal(t, idem.Failed, r.Record(key).State)
	require.Zero(t, r.Record(key).Due)
}
