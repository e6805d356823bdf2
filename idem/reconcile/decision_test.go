package reconcile_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

func TestAnExplanationOfAnInterruptedStep(t *testing.T) {
	r, key := newRig(t), order.Key("acme", "o-1")
	r.diedCharging(key)
	decisions := r.explain(key).Decisions
	require.Equal(t, "The recorded result. The handler does not run. Steps that are not recorded never run.", decisions[0].Then)
	require.Equal(t, "The handler runs, attempt 2, and skips the steps that are recorded: reserve. "+
		"It runs charge again. That is if Resolution.Steps says of each that it had no effect: a step that is recorded as done or failed is skipped.", decisions[2].Then)
	require.Equal(t, []string{"charge"}, decisions[2].Steps)
}

// What a preview says of a resolution is what the next call does.
func TestWhatIsPreviewedIsWhatHappens(t *testing.T) {
	key := order.Key("acme", "o-1")
	failure := idem.Failure{Message: "declined"}
	reserved := "The handler runs, attempt 2, and skips the steps that are recorded: reserve"
	charge := func(a reconcile.Answer) map[string]reconcile.Answer { return map[string]reconcile.Answer{"charge": a} }
	for name, tc := range map[string]struct {
		res  reconcile.Resolution
		then string
		want orderEffects
	}{
		"it took effect": {reconcile.Resolution{To: idem.Released, Steps: charge(reconcile.CompletedWith(7))},
			"The handler runs, attempt 2, and skips the steps that are recorded: charge, reserve. " +
				"The result of charge is recorded as given, and its form is not checked, since no record says which type a step returns: " +
				"the handler ignores a member that its type does not have, and reads a missing one and null as empty.", orderEffects{shipped: 1}},
		"it had no effect": {reconcile.Resolution{To: idem.Released, Steps: charge(reconcile.NotExecuted())},
			reserved + ". It runs charge again.", orderEffects{charged: 1, shipped: 1}},
		"it was declined": {reconcile.Resolution{To: idem.Released, Steps: charge(reconcile.FailedWith(failure))},
			reserved + ", and gets the recorded failure of: charge.", orderEffects{returned: 1}},
		"it took effect, result unknown": {reconcile.Resolution{To: idem.Released, Steps: charge(reconcile.CompletedWithoutResult())},
			reserved + ", and gets an error for the steps that took effect with a result that is not known: charge. " +
				"Unless these return nothing, most handlers then fail the operation for good: what other steps did is undone, and what these did is not.", orderEffects{returned: 1}},
		"the whole has no result": {reconcile.Resolution{To: idem.Completed},
			"HTTP 409 outcome_unavailable: it took effect, and its result is not recorded. The handler does not run. Steps that are not recorded never run.", orderEffects{}},
		"the whole failed": {reconcile.Resolution{To: idem.Failed, Failure: &failure, CompensatedManually: true},
			"The recorded failure. The handler does not run.", orderEffects{}},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRig(t), new(orderEffects)
			r.diedCharging(key)
			rc := r.reconciler()
			d := rc.Preview(r.Record(key), tc.res)
			require.Empty(t, d.Refused)
			require.Equal(t, tc.then, d.Then)
			require.NoError(t, rc.Resolve(t.Context(), key.ID(), tc.res, alice))
			_, _ = r.call(key, shopping(s, func() {}))
			require.Equal(t, tc.want, *s)
		})
	}
}

// A compensation needs the result of its step. Without it the next attempt is parked before it goes
// on, and a person says the result then, undoes all by hand, or decides that it took effect.
func TestWhatIsSaidOfAStepWithoutAResultThatHasACompensation(t *testing.T) {
	const reserved = "The handler runs, attempt 2, and skips the steps that are recorded: reserve"
	key, declined := order.Key("acme", "o-1"), reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}, CompensatedManually: true}
	for name, last := range map[string]reconcile.Resolution{
		"it is undone by hand": declined, "it took effect": {To: idem.Completed},
		"its result is said": charged(reconcile.CompletedWith(7)), "it is said once more": charged(reconcile.CompletedWithoutResult()),
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRig(t), new(orderEffects)
			undo := &idem.StepConfig[int]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error { s.returned++; return nil }}
			pay := func(died func()) func(context.Context, int) (int, error) {
				return func(ctx context.Context, _ int) (int, error) {
					if _, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { s.reserved++; return 1, nil }, undo); err != nil {
						return 0, err
					}
					out, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { s.charged++; died(); return 7, nil }, undo)
					return out, idem.PermanentStep(err)
				}
			}
			idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) { return idem.Do(ctx, e, key, 1, pay(r.Crash)) })
			r.Restart()
			r.lapse()
			rc := r.reconciler()
			d := rc.Preview(r.Record(key), charged(reconcile.CompletedWithoutResult()))
			require.Equal(t, reserved+". Unless these return nothing, the operation is parked again as soon as it comes to them, "+
				"since compensations need their results, which are to be said then: charge.", d.Then)
			require.NoError(t, rc.Resolve(t.Context(), key.ID(), charged(reconcile.CompletedWithoutResult()), alice))

			after := orderEffects{reserved: 1, charged: 1}
			parked := func() {
				_, err := r.call(key, pay(func() { t.Error("again") }))
				require.ErrorAs(t, err, new(*idem.StepUnavailableError))
				require.Equal(t, idem.Unknown, r.Record(key).State)
				require.Equal(t, after, *s)
				r.lapse()
				require.Contains(t, r.explain(key).Summary, "cannot go on with what was recorded of step charge")
			}
			parked()
			failed := declined
			failed.CompensatedManually = false
			var due *reconcile.NotUndoneError
			require.ErrorAs(t, rc.Resolve(t.Context(), key.ID(), failed, alice), &due)
			require.Equal(t, []string{"charge", "reserve"}, due.Steps)
			require.NoError(t, rc.Resolve(t.Context(), key.ID(), last, alice))
			if last.To == idem.Released {
				_, err := r.call(key, pay(func() { t.Error("again") }))
				require.Equal(t, name == "its result is said", err == nil)
			}
			require.Equal(t, after, *s)
		})
	}
}

// A preview refuses what Resolve refuses, in the same words or in plainer ones.
func TestAPreviewRefusesWhatResolveRefuses(t *testing.T) {
	key := order.Key("acme", "o-1")
	for refused, res := range map[string]reconcile.Resolution{
		`Steps has "sip"`:        {To: idem.Released, Steps: map[string]reconcile.Answer{"sip": reconcile.NotExecuted()}},
		"Steps is empty":         {To: idem.Released, Steps: map[string]reconcile.Answer{}},
		"Failure is nil":         {To: idem.Failed},
		"have not been undone":   {To: idem.Failed, Failure: &idem.Failure{Message: "declined"}},
		"resolution is about at": {To: idem.Released, Attempt: 2},
	} {
		r := newRig(t)
		r.diedCharging(key)
		rc := r.reconciler()
		d := rc.Preview(r.Record(key), res)
		require.Contains(t, d.Refused, refused)
		require.NotContains(t, d.Refused, "reconcile: ", "it is for people")
		require.Empty(t, d.Then)
		require.ErrorContains(t, rc.Resolve(t.Context(), key.ID(), res, alice), refused)
	}
	require.Equal(t, "there is no record", newRig(t).reconciler().Preview(nil, reconcile.Resolution{To: idem.Released}).Refused)
}

// Tools ask for a word about each of them.
func TestADecisionToReleaseNamesTheStepsToSpeakOf(t *testing.T) {
	r, key := newRig(t), order.Key("acme", "o-1")
	r.diedCharging(key)
	require.Equal(t, []string{"charge"}, r.explain(key).Decisions[2].Steps)
}

// A decision that can repeat an effect says so, and what it replaces.
func TestADecisionThatCanRepeatAnEffectSaysSo(t *testing.T) {
	var change func(*idem.Record)
	caution := func(r *rig, key idem.Key, res reconcile.Resolution) string {
		rec := r.Record(key)
		if change != nil {
			change(rec)
		}
		d := r.reconciler().Preview(rec, res)
		require.Empty(t, d.Refused)
		return d.Caution
	}
	r := newRig(t)
	key := refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	require.Contains(t, caution(r, key, reconcile.Resolution{To: idem.Released}), "it takes effect a second time")
	require.Empty(t, caution(r, key, reconcile.Resolution{To: idem.Completed}))
	require.Empty(t, caution(r, key, reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}}))
	require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed, Ref: "re_1"}, alice))
	require.Contains(t, caution(r, key, reconcile.Resolution{To: idem.Released, Replace: true}),
		"It was recorded as completed before, with the reference re_1. The operation is not repeatable")
	require.Contains(t, r.explain(key).Decisions[4].Caution, "a second time", "of a removal")

	died := order.Key("acme", "o-1")
	r.diedCharging(died)
	charge := func(a reconcile.Answer) reconcile.Resolution {
		return reconcile.Resolution{To: idem.Released, Steps: map[string]reconcile.Answer{"charge": a}}
	}
	require.Contains(t, caution(r, died, charge(reconcile.NotExecuted())), "If charge took effect, it takes effect a second time.")
	require.Empty(t, caution(r, died, charge(reconcile.CompletedWith(7))))

	change = func(rec *idem.Record) { rec.Repeat = idem.Repeatable }
	require.Empty(t, caution(r, key, reconcile.Resolution{To: idem.Released, Replace: true}))
	change = func(rec *idem.Record) { rec.Codec = "http" }
	failed := reconcile.Resolution{To: idem.Failed, Replace: true, Failure: &idem.Failure{Message: "declined"}}
	require.Contains(t, caution(r, key, failed), "402")
}
