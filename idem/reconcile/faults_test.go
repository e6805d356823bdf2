package reconcile_test

import (
	"context"
	"errors"
	"fmt"
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

// ending is how a killed refund, or webhook, should end under sweeps.
type ending struct {
	name    string
	key     idem.Key
	op      reconcile.Operation
	state   idem.State
	changes []protocol.Change
	people  int
}

func endings() []ending {
	r, w := refund.Key("acme", "1"), webhook.Key("acme", "1")
	asked := func(a reconcile.Answer) reconcile.Operation {
		return reconcile.Operation{Operation: refund, Probe: says(a), EscalateAfter: 5 * time.Minute}
	}
	parked, resolved, escalated := protocol.ChangeParked, protocol.ChangeResolved, protocol.ChangeEscalated
	return []ending{
		{"completed", r, asked(reconcile.CompletedWith(7)), idem.Completed, []protocol.Change{parked, resolved}, 0},
		{"failed", r, asked(reconcile.FailedWith(idem.Failure{Message: "no"})), idem.Failed, []protocol.Change{parked, resolved}, 0},
		{"not executed", r, asked(reconcile.NotExecuted()), idem.Released, []protocol.Change{parked, resolved}, 0},
		{"still unknown", r, asked(reconcile.StillUnknown(0)), idem.Unknown, []protocol.Change{parked, escalated}, 1},
		{"cannot be known", r, asked(reconcile.CannotBeKnown("gone")), idem.Unknown, []protocol.Change{parked, escalated}, 1},
		{"nobody to ask", r, reconcile.Operation{Operation: refund}, idem.Unknown, []protocol.Change{parked, escalated}, 1},
		{"abandoned", w, reconcile.Operation{Operation: webhook, EscalateAfter: 5 * time.Minute,
			OnAbandoned: func(context.Context, reconcile.Question) error { return nil }}, idem.InProgress, []protocol.Change{escalated}, 1},
	}
}

// settles sweeps every minute for an hour.
func settles(r *rig, s *reconcile.Sweeper) {
	for range 60 {
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(r.t.Context(), 50*time.Second)
		_, _ = s.Sweep(ctx)
		cancel()
	}
}

// ended checks that the record is where it should be, each change is kept once, and people
// got one message, perhaps more than once.
func (e ending) ended(r *rig, twice bool) {
	r.t.Helper()
	require.Equal(r.t, e.state, r.Record(e.key).State)
	require.Equal(r.t, e.changes, r.changes(e.key))
	messages := map[string]bool{}
	for _, g := range r.escalations {
		messages[g.Message] = true
	}
	require.Len(r.t, messages, e.people)
	if !twice {
		require.Len(r.t, r.escalations, e.people)
	}
}

// A sweep loses its process, a request or a reply at each of its calls. Later sweeps bring
// the record where it would have come without. People get their message twice only where
// nobody can know that they have it.
func TestASweepMayDieBetweenAnyTwoCalls(t *testing.T) {
	for _, e := range endings() {
		for how, fault := range map[string]struct {
			at, after idemtest.Fault
		}{
			"dies before":       {idemtest.LoseRequest, idemtest.LoseRequest},
			"dies after":        {idemtest.LoseReply, idemtest.LoseRequest},
			"loses the request": {at: idemtest.LoseRequest},
			"loses the reply":   {at: idemtest.LoseReply},
			"is throttled":      {at: idemtest.Refuse},
			"bare conflict":     {at: idemtest.BareConflict},
		} {
			calls := disturbed(t, e, 0, nil, nil, true)
			require.Greater(t, calls, 3)
			for n := range calls {
				t.Run(fmt.Sprintf("%s, %s at call %d", e.name, how, n+1), func(t *testing.T) {
					certain := fault.after == nil && how != "is throttled" && how != "bare conflict"
					disturbed(t, e, n+1, fault.at, fault.after, certain)
				})
			}
		}
	}
}

// disturbed sweeps with a fault at the n-th call, and perhaps another one at all later
// calls, and then without. It returns how many calls were made.
func disturbed(t *testing.T, e ending, n int, at, after idemtest.Fault, certain bool) (made int) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.killed(e.key)
		time.Sleep(time.Minute)
		var dead atomic.Bool // shards are listed while records are handled
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if dead.Load() {
				return after(ctx, c)
			}
			if c.Method == idemtest.Due {
				return c.Do(ctx)
			}
			if made++; made == n {
				dead.Store(after != nil)
				return at(ctx, c)
			}
			return c.Do(ctx)
		})
		o := reconcile.SweepOptions{Operations: []reconcile.Operation{e.op}}
		first := r.sweeper(o)
		for i := 0; i < 60 && !dead.Load(); i++ {
			if _, err := first.Sweep(t.Context()); !dead.Load() {
				require.NoError(t, err)
			}
			time.Sleep(time.Minute)
		}
		require.GreaterOrEqual(t, made, n)
		r.Faults.Heal()
		settles(r, r.sweeper(o))
		e.ended(r, !certain)
	})
	return made
}

// Between any two calls of a sweep another one runs as a whole.
func TestTwoSweepersChangeNothingTwice(t *testing.T) {
	for _, e := range endings() {
		for n := 1; n < 20; n++ {
			t.Run(fmt.Sprintf("%s, at call %d", e.name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					r.killed(e.key)
					time.Sleep(time.Minute)
					o := reconcile.SweepOptions{Operations: []reconcile.Operation{e.op}}
					one, other := r.sweeper(o), r.sweeper(o)
					made := 0
					r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
						if c.Method == idemtest.Due {
							return c.Do(ctx)
						}
						if made++; made == n {
							_, err := other.Sweep(t.Context())
							require.NoError(t, err)
						}
						return c.Do(ctx)
					})
					for range 60 {
						_, err := one.Sweep(t.Context())
						require.NoError(t, err)
						time.Sleep(time.Minute)
					}
					r.Faults.Heal()
					e.ended(r, false)
				})
			})
		}
	}
}

// The attempt's own outcome comes late, between any two calls of a sweep: it counts, or
// what the sweep has recorded does, and the attempt is told.
func TestALateOutcomeBetweenAnyTwoCalls(t *testing.T) {
	for _, e := range endings()[:6] {
		for n := 1; n < 12; n++ {
			t.Run(fmt.Sprintf("%s, at call %d", e.name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					r.killed(e.key)
					rec := r.Record(e.key)
					time.Sleep(time.Minute)
					finish := protocol.Finish{ID: rec.ID, Owner: rec.Owner, Write: "late", Created: rec.CreatedAt, Watched: true,
						Ending: protocol.Ending{State: idem.Completed, Result: []byte("99"), ExpiresAt: time.Now().Add(24 * time.Hour)}}
					var late error
					made := 0
					r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
						if made++; made == n {
							late = r.Store.Finish(t.Context(), time.Now(), finish)
						}
						return c.Do(ctx)
					}, idemtest.Get, idemtest.Settle, idemtest.Postpone)
					s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{e.op}})
					for i := 0; i < 60; i++ {
						_, err := s.Sweep(t.Context())
						require.NoError(t, err)
						time.Sleep(time.Minute)
					}
					if made < n {
						return
					}
					var conflict *protocol.ConflictError
					if errors.As(late, &conflict) {
						require.Contains(t, e.changes, protocol.ChangeResolved)
						e.ended(r, false)
						return
					}
					require.NoError(t, late)
					got, err := r.call(e.key, mustNotRun)
					require.NoError(t, err)
					require.Equal(t, 99, got)
					require.Zero(t, r.Record(e.key).Due)
				})
			})
		}
	}
}
