package reconcile_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// The provider's answer is more than the memory of the sweep, whose process dies of it each
// time, or the work that it sends again is. It is called ever more rarely, and people get
// the question in the end.
func TestACallThatKillsItsSweepIsLeftToPeople(t *testing.T) {
	for _, op := range []idem.Operation{refund, webhook} {
		synctest.Test(t, func(t *testing.T) {
			r, key := newRig(t), op.Key("acme", "r-1")
			r.killed(key)
			time.Sleep(time.Minute)
			var dead atomic.Bool
			r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
				if dead.Load() {
					return c.Lost()
				}
				return c.Do(ctx)
			})
			calls := 0
			kill := func() { calls++; dead.Store(true) }
			s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: op, EscalateAfter: 2 * time.Hour,
				Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
					kill()
					return reconcile.CompletedWith(7), nil
				},
				OnAbandoned: func(context.Context, reconcile.Question) error { kill(); return nil },
			}}})
			state := r.Record(key).State
			for range 6 * 60 {
				_, _ = s.Sweep(t.Context())
				dead.Store(false)
				time.Sleep(time.Minute)
			}
			require.Len(t, r.escalations, 1)
			require.Contains(t, r.escalations[0].Reason, "recorded no")
			require.Contains(t, r.changes(key), protocol.ChangeEscalated)
			require.Contains(t, []idem.State{idem.Unknown, state}, r.Record(key).State)
			require.Less(t, calls, 15)
		})
	}
}

// The sweep was not run for long: what has become due since then is asked about all the same.
func TestAQuestionThatWaitedForTheSweepIsAsked(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	known := false
	s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
		if !known {
			return reconcile.StillUnknown(0), nil
		}
		return reconcile.CompletedWith(7), nil
	})
	r.sweep(s)
	known = true
	r.Clock.Advance(10 * reconcile.DefaultProbeAge)
	r.sweep(s)
	require.Equal(t, idem.Completed, r.Record(key).State)
	require.Empty(t, r.escalations)
}
