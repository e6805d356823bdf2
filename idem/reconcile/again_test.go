package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// charged releases an order, with a word about its charge.
func charged(a reconcile.Answer) reconcile.Resolution {
	return reconcile.Resolution{To: idem.Released, Steps: map[string]reconcile.Answer{"charge": a}}
}

// again is the resolution over another one.
func again(res reconcile.Resolution) reconcile.Resolution {
	res.Replace = true
	return res
}

// A person has said by mistake what became of the charge, and says it anew: the order that goes
// on pays once, and nothing is shipped that nobody pays for.
func TestWhatWasSaidOfAStepIsSaidAnew(t *testing.T) {
	key := order.Key("acme", "o-1")
	failure := idem.Failure{Message: "declined"}
	took, declined, absent := reconcile.CompletedWith(7), reconcile.FailedWith(failure), reconcile.NotExecuted()
	for name, tc := range map[string]struct {
		first, second reconcile.Resolution
		want          orderEffects
		out           int
		said          protocol.StepVerdict
	}{
		"it had no effect":                {charged(took), charged(absent), orderEffects{charged: 1, shipped: 1}, 7, protocol.StepNotExecuted},
		"it was declined":                 {charged(took), charged(declined), orderEffects{returned: 1}, 0, protocol.StepFailed},
		"it was not declined":             {charged(declined), charged(took), orderEffects{shipped: 1}, 7, protocol.StepTookEffect},
		"its result is known":             {charged(reconcile.CompletedWithoutResult()), charged(took), orderEffects{shipped: 1}, 7, protocol.StepTookEffect},
		"its result is another one":       {charged(reconcile.CompletedWith(8)), charged(took), orderEffects{shipped: 1}, 7, protocol.StepTookEffect},
		"its result is not known":         {charged(took), charged(reconcile.CompletedWithoutResult()), orderEffects{returned: 1}, 0, protocol.StepWithoutResult},
		"its large result is another one": {charged(reconcile.CompletedWith(make([]int, 20_000))), charged(took), orderEffects{shipped: 1}, 7, protocol.StepTookEffect},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRig(t), new(orderEffects)
			r.diedCharging(key)
			rc := r.reconciler()
			require.NoError(t, rc.Resolve(t.Context(), key.ID(), tc.first, alice))
			d := rc.Preview(r.Record(key), again(tc.second))
			require.Empty(t, d.Refused)
			require.Equal(t, []string{"charge"}, d.Steps)
			r.Faults.Next(idemtest.Settle, idemtest.LoseReply)
			require.NoError(t, rc.Resolve(t.Context(), key.ID(), again(tc.second), r.seen(key)))
			require.Equal(t, map[string]protocol.StepVerdict{"charge": tc.said}, r.last(key).Steps)
			out, _ := r.call(key, shopping(s, func() {}))
			require.Equal(t, tc.want, *s)
			require.Equal(t, tc.out, out)
		})
	}
}

// A step that returns nothing has no result that could be unknown: it took effect, and the
// operation goes on, or it is undone like others.
func TestAStepThatReturnsNothingIsDoneWithoutAResult(t *testing.T) {
	for name, tc := range map[string]struct {
		after error
		want  orderEffects
	}{
		"the operation goes on": {nil, orderEffects{shipped: 1}},
		"the operation fails":   {idem.Permanent(errPlain), orderEffects{returned: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, key := newRig(t), new(orderEffects), order.Key("acme", "o-1")
			pay := func(ctx context.Context, _ int) (int, error) {
				err := idem.StepEffect(ctx, "charge", func(context.Context) error { s.charged++; return nil },
					&idem.EffectConfig{Semantics: idem.AtMostOnce, Compensate: func(context.Context) error { s.returned++; return nil }})
				if err != nil || tc.after != nil {
					return 0, errors.Join(err, tc.after)
				}
				return 7, idem.StepEffect(ctx, "ship", func(context.Context) error { s.shipped++; return nil }, nil)
			}
			r.killedIn(key, "charge")
			require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), charged(reconcile.CompletedWithoutResult()), alice))
			require.Contains(t, r.explain(key).SameInput, "Unless these return nothing, most handlers then fail the operation for good")
			_, err := r.call(key, pay)
			require.ErrorIs(t, err, tc.after)
			require.Equal(t, tc.want, *s)
		})
	}
}

// What a step owes survives that it was said to have failed: it must be undone once it is said
// to have taken effect.
func TestAStepThatIsSaidToHaveTakenEffectAfterAllMustBeUndone(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "w-1")
	d := idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, func(ctx context.Context, _ int) (int, error) {
			return idem.Step(ctx, "charge", func(context.Context) (int, error) { r.Crash(); return 7, nil },
				&idem.StepConfig[int]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error { return nil }})
		})
	})
	require.ErrorIs(t, d[0].Err, idemtest.ErrCrashed)
	r.Restart()
	r.lapse()
	rc := r.reconciler()
	failed := again(reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "sold out"}})
	require.NoError(t, rc.Resolve(t.Context(), key.ID(), charged(reconcile.FailedWith(idem.Failure{Message: "declined"})), alice))
	require.Empty(t, rc.Preview(r.Record(key), failed).Refused, "a charge that failed owes nothing")
	require.NoError(t, rc.Resolve(t.Context(), key.ID(), again(charged(reconcile.CompletedWith(7))), r.seen(key)))
	var due *reconcile.NotUndoneError
	require.ErrorAs(t, rc.Resolve(t.Context(), key.ID(), failed, r.seen(key)), &due)
	require.Equal(t, []string{"charge"}, due.Steps)
}

// Nothing is told that is not so: what would change nothing, and what comes too late, is refused.
func TestAResolutionThatComesTooLateOrChangesNothingIsRefused(t *testing.T) {
	key := order.Key("acme", "o-1")
	took, absent := reconcile.CompletedWith(7), reconcile.NotExecuted()
	fails := func(context.Context, int) (int, error) { return 0, errPlain }
	for name, tc := range map[string]struct {
		first, second reconcile.Resolution
		between       func(r *rig)
		want          string
	}{
		"the same word":             {charged(took), charged(took), nil, "released before, and nothing would change"},
		"no step is left":           {charged(absent), charged(absent), nil, `Steps has "charge", which the earlier resolution has removed`},
		"it was released before":    {charged(absent), reconcile.Resolution{To: idem.Released}, nil, "released before, and nothing would change"},
		"an attempt runs":           {charged(took), charged(absent), func(r *rig) { r.killed(key) }, "is in_progress by its attempt 2"},
		"an attempt has gone by it": {charged(took), charged(absent), func(r *rig) { _, _ = r.call(key, fails) }, "is released by its attempt 2"},
		"an attempt has gone by it and died in another step": {charged(took), charged(absent), func(r *rig) { r.killedIn(key, "ship") },
			`Steps has "charge", whose outcome is recorded`},
		"an attempt has completed": {charged(took), charged(absent), func(r *rig) { _, _ = r.call(key, shopping(new(orderEffects), func() {})) },
			"is completed by its attempt 2"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.diedCharging(key)
			rc := r.reconciler()
			require.NoError(t, rc.Resolve(t.Context(), key.ID(), tc.first, alice))
			looked := r.seen(key)
			if tc.between != nil {
				tc.between(r)
			}
			before := r.Record(key)
			if tc.between != nil {
				require.ErrorIs(t, rc.Resolve(t.Context(), key.ID(), again(tc.second), looked), reconcile.ErrChanged)
			}
			require.ErrorContains(t, rc.Resolve(t.Context(), key.ID(), again(tc.second), r.seen(key)), tc.want)
			require.Equal(t, before, r.Record(key))
			require.Len(t, r.changes(key), 1)
		})
	}
}

// killedIn leaves an order whose process died in an at-most-once step with this name. Its lease
// is over.
func (r *rig) killedIn(key idem.Key, step string) {
	r.t.Helper()
	r.killedInStep(key, step, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
}

func (r *rig) killedInStep(key idem.Key, step string, conf *idem.StepConfig[int]) {
	r.t.Helper()
	d := idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, func(ctx context.Context, _ int) (int, error) {
			return idem.Step(ctx, step, func(context.Context) (int, error) { r.Crash(); return 7, nil }, conf)
		})
	})
	require.ErrorIs(r.t, d[0].Err, idemtest.ErrCrashed)
	r.Restart()
	r.lapse()
}

// The reply to a replacing resolution is lost, and somebody else replaces it: the retry is no
// leave to decide again.
func TestARetryReplacesNoLaterDecision(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	rc := r.reconciler()
	require.NoError(t, reconcile.Resolve(t.Context(), rc, key, 1, alice))
	seven, err := reconcile.Encode(7)
	require.NoError(t, err)
	r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		_ = c.Do(ctx)
		require.NoError(t, rc.Resolve(ctx, key.ID(), again(reconcile.Resolution{To: idem.Completed, Result: &seven}), r.seen(key)))
		return c.Lost()
	})
	by := r.seen(key)
	for range 2 { // alice tries once more
		require.ErrorIs(t, rc.Resolve(t.Context(), key.ID(), again(reconcile.Resolution{To: idem.Released}), by), reconcile.ErrChanged)
		require.Equal(t, idem.Completed, r.Record(key).State, "the later decision counts")
	}
}

// What a resolution to completed has removed is remembered where it must be undone.
func TestAResolutionThatIsReplacedHasNotForgottenWhatMustBeUndone(t *testing.T) {
	key := order.Key("acme", "o-1")
	failed := again(reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}})
	for name, between := range map[string]func(r *rig){
		"at once":                   func(*rig) {},
		"after another replacement": func(r *rig) { r.over(key, reconcile.Resolution{To: idem.Completed}) },
		"after an extension": func(r *rig) {
			require.NoError(r.t, r.reconciler().Extend(r.t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.diedCharging(key)
			rc := r.reconciler()
			require.NoError(t, reconcile.Resolve(t.Context(), rc, key, 7, alice))
			between(r)
			require.Equal(t, []string{"reserve"}, r.explain(key).Decisions[1].Undo)
			var due *reconcile.NotUndoneError
			require.ErrorAs(t, rc.Resolve(t.Context(), key.ID(), failed, r.seen(key)), &due)
			require.Equal(t, []string{"reserve"}, due.Steps)
			undone := failed
			undone.CompensatedManually = true
			r.over(key, undone)
			require.Equal(t, map[string]protocol.StepVerdict{"reserve": protocol.StepUndone}, r.last(key).Steps)
			require.Empty(t, r.explain(key).Decisions[1].Undo)
			require.Empty(t, r.Record(key).Steps)
		})
	}
	for _, extended := range []bool{false, true} {
		t.Run(fmt.Sprintf("it never took effect, extended %v", extended), func(t *testing.T) {
			r, s := newRig(t), new(orderEffects)
			r.diedCharging(key)
			rc := r.reconciler()
			require.NoError(t, reconcile.Resolve(t.Context(), rc, key, 7, alice))
			if extended {
				require.NoError(t, rc.Extend(t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
			}
			r.over(key, reconcile.Resolution{To: idem.Released, Steps: map[string]reconcile.Answer{"reserve": reconcile.NotExecuted()}})
			out, err := r.call(key, shopping(s, func() {}))
			require.NoError(t, err)
			require.Equal(t, 7, out)
			require.Equal(t, orderEffects{reserved: 1, charged: 1, shipped: 1}, *s)
		})
	}
}

// over replaces the resolution of the record.
func (r *rig) over(key idem.Key, res reconcile.Resolution) {
	r.t.Helper()
	require.NoError(r.t, r.reconciler().Resolve(r.t.Context(), key.ID(), again(res), r.seen(key)))
}
