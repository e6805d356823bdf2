package reconcile_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// A provider that answers slowly does answer: no circuit opens. It is asked as many
// questions at once as any other one, and in the same sweep the others' are all served,
// also those that are due later.
func TestAProviderThatIsSlowTakesNoTimeOfTheOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		concurrency int
		sweep       time.Duration
	}{
		"by default":       {0, 50 * time.Second},
		"one at a time":    {1, 50 * time.Second},
		"with little time": {0, 12 * time.Second},
		"one, little time": {1, 12 * time.Second},
		"forty at a time":  {40, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				slow, sibling := refund, idem.Operation{Name: "chargeback"}
				quick, unasked := idem.Operation{Name: "transfer"}, idem.Operation{Name: "booking"}
				due := func(op idem.Operation, n int) {
					for i := range n {
						r.due(t, op.Key("acme", fmt.Sprint(i)))
					}
				}
				due(slow, 150)
				due(sibling, 50)
				r.Clock.Advance(time.Second)
				due(quick, 30)
				due(unasked, 30)
				r.lapse()
				var mu sync.Mutex
				running, most := 0, 0
				slowly := func(ctx context.Context, _ reconcile.Question) (reconcile.Answer, error) {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					deadline, _ := ctx.Deadline()
					time.Sleep(time.Until(deadline) * 9 / 10)
					mu.Lock()
					running--
					mu.Unlock()
					return reconcile.StillUnknown(0), nil
				}
				s := r.sweeper(reconcile.SweepOptions{Concurrency: tc.concurrency, Operations: []reconcile.Operation{
					{Operation: slow, Provider: "bank", Probe: slowly}, {Operation: sibling, Provider: "bank", Probe: slowly},
					{Operation: quick, Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
						time.Sleep(20 * time.Millisecond)
						return reconcile.CompletedWith(1), nil
					}},
				}})
				ctx, cancel := context.WithTimeout(t.Context(), tc.sweep)
				defer cancel()
				report, err := s.Sweep(ctx)
				require.NoError(t, err)
				require.NoError(t, ctx.Err())
				for i := range 30 {
					require.Equal(t, idem.Completed, r.Record(quick.Key("acme", fmt.Sprint(i))).State)
					require.Equal(t, idem.Unknown, r.Record(unasked.Key("acme", fmt.Sprint(i))).State)
				}
				want := tc.concurrency
				if want == 0 {
					want = reconcile.DefaultConcurrency
				}
				require.Equal(t, want, most)
				require.Equal(t, 30, report.Resolved)
				require.Equal(t, 260, report.Listed)
				require.False(t, report.More)
				require.Positive(t, report.Left)
				require.Equal(t, 260, report.Resolved+report.Postponed+report.Probed+report.Left)
				require.NotContains(t, kinds(report), notice.SweepFailed)
			})
		})
	}
}

// Of more than fits into a sweep's memory the rest is left to the next one.
func TestABacklogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const due = 10_300
		for i := range due {
			r.due(t, refund.Key("acme", fmt.Sprint(i)))
		}
		r.lapse()
		s := r.sweeper(reconcile.SweepOptions{Concurrency: 1, Operations: []reconcile.Operation{{
			Operation: refund, Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				time.Sleep(time.Millisecond)
				return reconcile.CompletedWith(1), nil
			},
		}}})
		first, err := s.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, due, first.Listed)
		require.Positive(t, first.Left)
		require.Equal(t, due, first.Resolved+first.Left)
		second, err := s.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{first.Left, first.Left, 0}, []int{second.Listed, second.Resolved, second.Left})
	})
}

// due leaves the claim of a process that has died, without playing it.
func (r *rig) due(t *testing.T, key idem.Key) {
	t.Helper()
	now := r.Clock.Now()
	require.NoError(t, r.Store.Acquire(t.Context(), now, protocol.Claim{Record: protocol.Record{
		ID: key.ID(), State: protocol.InProgress, Owner: "o", Attempt: 1, Write: "w",
		LeaseUntil: now, Due: now, CreatedAt: now, UpdatedAt: now,
	}}))
}
