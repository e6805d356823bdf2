package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	require.Empty(t, r.sweep(s), "it is not due before it is escalated")
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

// unlisted is a store whose shards cannot be listed, as often as fails says.
type unlisted struct {
	reconcile.Store
	asked int
	fails func(n int) error
}

func (u *unlisted) Due(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
	u.asked++
	if err := u.fails(u.asked); err != nil {
		return protocol.DuePage{}, &idem.StoreError{Op: "Due", Err: err}
	}
	return u.Store.Due(ctx, q)
}

func TestAStoreThatIsDownIsAskedThreeTimesAndToldOnce(t *testing.T) {
	noTable := func(n int) error {
		return fmt.Errorf("https response error StatusCode: 400, RequestID: R%d, ResourceNotFoundException", n)
	}
	reset := func(n int) error {
		return fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:8000: connection reset by peer", 1000+n)
	}
	throttled := errors.New("throttled")
	for name, tc := range map[string]struct {
		fails           func(n int) error
		asked, problems int
		more            bool
	}{
		"no table":     {noTable, 3, 1, true},
		"resets":       {reset, 3, 1, true},
		"one of each":  {func(n int) error { return []func(int) error{noTable, reset}[n%2](n) }, 3, 2, true},
		"a busy shard": {func(n int) error { return map[int]error{4: throttled}[n] }, protocol.Shards, 1, false},
		"here and there": {func(n int) error {
			if n%3 == 0 {
				return nil
			}
			return throttled
		}, protocol.Shards, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			store := &unlisted{Store: r.Faults, fails: tc.fails}
			rc, err := reconcile.New(store, &reconcile.Options{Now: r.Clock.Now})
			require.NoError(t, err)
			s, err := reconcile.NewSweeper(rc, nil)
			require.NoError(t, err)
			report, err := s.Sweep(t.Context())
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Equal(t, tc.asked, store.asked)
			require.Len(t, report.Problems, tc.problems)
			require.Equal(t, tc.more, report.More)
			require.Len(t, strings.Split(err.Error(), "\n"), tc.problems, "the error says each once too")
		})
	}
}
