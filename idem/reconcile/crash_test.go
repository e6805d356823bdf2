package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// provider takes charges, and remembers them by their token.
type provider struct {
	charges []string
	silent  bool
}

func (p *provider) charge(ctx context.Context, amount int) (int, error) {
	p.charges = append(p.charges, idem.Token(ctx))
	return amount, nil
}

// probe asks by the token. A silent provider answers nothing until the time is over.
func (p *provider) probe(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
	if p.silent {
		<-ctx.Done()
		return reconcile.Answer{}, ctx.Err()
	}
	for _, token := range p.charges {
		if token == q.Token {
			return reconcile.CompletedWith(1).WithRef("ch_1"), nil
		}
	}
	return reconcile.NotExecuted(), nil
}

// The process is killed in its handler, before or after the effect, and a sweep comes every minute.
func TestAKilledProcessLeavesNoQuestionInSilence(t *testing.T) {
	for _, tc := range []struct {
		name    string
		charged bool
		silent  bool
		state   idem.State      // within two minutes of the lease's end
		last    protocol.Change // after it was parked
	}{
		{"the provider remembers", true, false, idem.Completed, protocol.ChangeResolved},
		{"the provider has none", false, false, idem.Released, protocol.ChangeResolved},
		{"the provider does not answer", true, true, idem.Unknown, protocol.ChangeEscalated},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			r, p := newRig(t, refund), &provider{silent: tc.silent}
			r.crash(r.key, func(ctx context.Context, amount int) (int, error) {
				if tc.charged {
					_, _ = p.charge(ctx, amount)
				}
				r.Crash()
				return 0, ctx.Err()
			})
			require.Equal(t, idem.InProgress, r.record().State)
			lease := r.record().LeaseUntil
			s := r.probing(p.probe)
			every := func(until time.Time) {
				for time.Now().Before(until) {
					time.Sleep(time.Minute)
					if r.isDue() {
						r.within(50*time.Second, s)
					}
				}
			}
			every(lease.Add(time.Minute))
			require.WithinDuration(t, lease, time.Now(), 2*time.Minute)
			require.Equal(t, tc.state, r.record().State)
			every(lease.Add(12 * time.Hour))
			require.Len(t, r.escalations, map[bool]int{true: 1}[tc.silent])

			charge := func(*rig) handler { return p.charge }
			if tc.silent {
				r.play(fails(charge, idem.ErrOutcomeUnknown))
			} else {
				r.play(gets(charge, 1))
			}
			require.Len(t, p.charges, 1, "one charge, whatever happened")
			require.Equal(t, []protocol.Change{protocol.ChangeParked, tc.last}, r.changes(r.key))
			if tc.silent {
				rec := r.record()
				require.False(t, rec.EscalatedAt.IsZero())
				require.WithinDuration(t, lease.Add(reconcile.DefaultProbeAge), rec.EscalatedAt, time.Hour+5*time.Minute)
				require.Greater(t, rec.Probes, 4)
				require.Less(t, rec.Probes, 20, "it backs off")
			}
		})
	}
}

// ending is how the claim of a killed process should end under sweeps that know the operation so.
type ending struct {
	name        string
	op          reconcile.Operation
	state       idem.State
	changes     []protocol.Change
	escalations int
}

func endings() []ending {
	asked := func(a reconcile.Answer) reconcile.Operation {
		return reconcile.Operation{Operation: refund, Probe: says(a), EscalateAfter: 5 * time.Minute}
	}
	resolves, escalates := []protocol.Change{parked, resolved}, []protocol.Change{parked, wasEscalated}
	return []ending{
		{"completed", asked(tookEffect), idem.Completed, resolves, 0},
		{"failed", asked(hasFailed), idem.Failed, resolves, 0},
		{"not executed", asked(notExecuted), idem.Released, resolves, 0},
		{"still unknown", asked(stillUnknown), idem.Unknown, escalates, 1},
		{"cannot be known", asked(cannotBeKnown), idem.Unknown, escalates, 1},
		{"no probe", reconcile.Operation{Operation: refund}, idem.Unknown, escalates, 1},
		{"abandoned", reconcile.Operation{Operation: webhook, EscalateAfter: 5 * time.Minute,
			OnAbandoned: func(context.Context, reconcile.Question) error { return nil },
		}, idem.InProgress, []protocol.Change{wasEscalated}, 1},
	}
}

// ended checks that the record is where it should be, each change is kept once, and operators
// got one message, perhaps more than once.
func (e ending) ended(r *rig, twice bool) {
	r.t.Helper()
	r.play(is(e.state), changed(e.changes...))
	messages := map[string]bool{}
	for _, g := range r.escalations {
		messages[g.Message] = true
	}
	require.Len(r.t, messages, e.escalations)
	if !twice {
		require.Len(r.t, r.escalations, e.escalations)
	}
}

// everywhere disturbs the sweeps of a record at each of their calls, in a run of its own for each, and then
// one more at none.
func (e ending) everywhere(t *testing.T, dies bool,
	at func(ctx context.Context, r *rig, c *idemtest.Call) error, check func(r *rig, disturbed bool),
) {
	n := 1
	for e.disturbed(t, n, dies, at, func(r *rig, made int) { check(r, made >= n) }) >= n {
		n++
	}
	require.Greater(t, n, 3)
}

// disturbed sweeps the record of a killed process for two hours. At the n-th call that is about the record something
// happens, and with dies the sweep's process ends then: another one goes on. It returns how many calls were made.
func (e ending) disturbed(t *testing.T, n int, dies bool,
	at func(ctx context.Context, r *rig, c *idemtest.Call) error, check func(r *rig, made int),
) (made int) {
	inBubble(t, fmt.Sprintf("%s, at call %d", e.name, n), func(t *testing.T) {
		r := newRig(t, e.op.Operation)
		killed(r)
		r.owner = r.record().Owner
		time.Sleep(time.Minute)
		var dead atomic.Bool // shards are listed while records are handled
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			switch {
			case dead.Load():
				return idemtest.LoseRequest(ctx, c)
			case c.Method == idemtest.Due:
				return c.Do(ctx)
			}
			if made++; made == n {
				dead.Store(dies)
				return at(ctx, r, c)
			}
			return c.Do(ctx)
		})
		o := reconcile.SweepOptions{Operations: []reconcile.Operation{e.op}}
		first := r.sweeper(o)
		for i := 0; i < 60 && !dead.Load(); i++ {
			if r.isDue() {
				if _, err := first.Sweep(t.Context()); !dead.Load() {
					require.NoError(t, err)
				}
			}
			time.Sleep(time.Minute)
		}
		r.Faults.Heal()
		second := r.sweeper(o)
		for range 60 {
			if time.Sleep(time.Minute); r.isDue() {
				r.within(50*time.Second, second)
			}
		}
		check(r, made)
	})
	return made
}

// A sweep loses its process, a request or a reply at each of its calls. Later sweeps bring the record where it would
// have come without. Operators get their message twice only where it cannot be known that they have it.
func TestASweepMayDieBetweenAnyTwoCalls(t *testing.T) {
	for how, tc := range map[string]struct {
		at            idemtest.Fault
		dies, certain bool
	}{
		"dies before":       {at: idemtest.LoseRequest, dies: true},
		"dies after":        {at: idemtest.LoseReply, dies: true},
		"loses the request": {at: idemtest.LoseRequest, certain: true},
		"loses the reply":   {at: idemtest.LoseReply, certain: true},
		"is throttled":      {at: idemtest.Refuse},
		"bare conflict":     {at: idemtest.BareConflict},
	} {
		t.Run(how, func(t *testing.T) {
			at := func(ctx context.Context, _ *rig, c *idemtest.Call) error { return tc.at(ctx, c) }
			for _, e := range endings() {
				e.everywhere(t, tc.dies, at, func(r *rig, _ bool) { e.ended(r, !tc.certain) })
			}
		})
	}
}

// Between any two calls of a sweep another one runs as a whole.
func TestTwoSweepersChangeNothingTwice(t *testing.T) {
	for _, e := range endings() {
		another := func(ctx context.Context, r *rig, c *idemtest.Call) error {
			_, err := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{e.op}}).Sweep(ctx)
			require.NoError(t, err)
			return c.Do(ctx)
		}
		e.everywhere(t, false, another, func(r *rig, _ bool) { e.ended(r, false) })
	}
}

// The attempt's own outcome comes late, between any two calls of a sweep: it counts, or
// what the sweep has recorded does, and the attempt gets that.
func TestALateOutcomeBetweenAnyTwoCalls(t *testing.T) {
	for _, e := range endings()[:6] {
		var late error
		finish := func(ctx context.Context, r *rig, c *idemtest.Call) error {
			rec := r.record()
			late = r.Store.Finish(ctx, time.Now(), protocol.Finish{
				ID: rec.ID, Owner: r.owner, Write: "late", Created: rec.CreatedAt, Watched: true,
				Ending: protocol.Ending{State: idem.Completed, Result: []byte("99"), ExpiresAt: time.Now().Add(24 * time.Hour)},
			})
			return c.Do(ctx)
		}
		e.everywhere(t, false, finish, func(r *rig, disturbed bool) {
			var conflict *protocol.ConflictError
			switch {
			case !disturbed:
				e.ended(r, false)
			case errors.As(late, &conflict):
				require.Contains(t, e.changes, protocol.ChangeResolved)
				e.ended(r, false)
			default:
				require.NoError(t, late)
				r.play(gets(mustNotRun, 99), settledForGood)
			}
		})
	}
}
