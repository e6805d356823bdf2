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

func TestALapsedClaimIsParked(t *testing.T) {
	r := newRig(t)
	key := refund.Key("acme", "r-1")
	r.killed(key)
	s := r.sweeper(reconcile.SweepOptions{})
	require.Empty(t, r.sweep(s), "it may still run")
	r.lapse()
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.SweepPostponed}, r.sweep(s))
	rec := r.Record(key)
	require.Equal(t, idem.Unknown, rec.State)
	require.Equal(t, 1, rec.Attempt)
	require.Equal(t, []protocol.Change{protocol.ChangeParked}, r.changes(key))
	require.Empty(t, r.sweep(s), "it is not due before people get it")
	_, err := r.call(key, func(context.Context, int) (int, error) { panic("it must not run again") })
	require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
}

func TestAClaimThatStillRunsIsPostponed(t *testing.T) {
	r := newRig(t)
	key := refund.Key("acme", "r-1")
	r.killed(key)
	rec := r.Record(key)
	r.Clock.Advance(20 * time.Second)
	lease := rec.LeaseUntil.Add(20 * time.Second)
	require.NoError(t, r.Store.Extend(t.Context(), r.Clock.Now(), protocol.Extension{ID: rec.ID, Owner: rec.Owner, Write: "beat", LeaseUntil: lease}))
	r.Clock.Advance(15 * time.Second)
	r.Faults.Reset()
	require.Equal(t, []notice.Kind{notice.SweepPostponed}, r.sweep(r.sweeper(reconcile.SweepOptions{})))
	got := r.Record(key)
	require.Equal(t, idem.InProgress, got.State)
	require.Equal(t, lease.Add(idem.DefaultMargin), got.Due)
	require.Zero(t, got.Probes)
	require.Equal(t, "beat", got.Write, "writes under way are not disturbed")
	require.Empty(t, r.changes(key))
	require.Contains(t, r.Faults.Calls(), idemtest.Postpone)
}
