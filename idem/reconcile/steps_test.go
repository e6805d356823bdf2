package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// A process has died in its at-most-once charge. What is found out about the charge is its
// outcome, and the next call ships: nobody pays for what is never sent.
func TestAnOrderGoesOnAfterTheStepThatWasInterrupted(t *testing.T) {
	key := order.Key("acme", "o-1")
	for name, tc := range map[string]struct {
		charge reconcile.Answer
		want   orderEffects
		out    int
		err    string
	}{
		"it took effect":   {reconcile.CompletedWith(7), orderEffects{shipped: 1}, 7, "<nil>"},
		"it had no effect": {reconcile.NotExecuted(), orderEffects{charged: 1, shipped: 1}, 7, "<nil>"},
		"it was declined": {reconcile.FailedWith(idem.Failure{Message: "declined"}),
			orderEffects{returned: 1}, 0, "declined"},
		"it took effect, result unknown": {reconcile.CompletedWithoutResult(), orderEffects{returned: 1}, 0, "result"},
	} {
		steps := map[string]reconcile.Answer{"charge": tc.charge}
		goesOn := func(t *testing.T, r *rig) {
			t.Helper()
			require.Equal(t, idem.Released, r.Record(key).State)
			s := new(orderEffects)
			out, err := r.call(key, shopping(s, func() {}))
			require.Equal(t, tc.out, out)
			require.Equal(t, tc.want, *s)
			require.Contains(t, fmt.Sprint(err), tc.err)
		}
		t.Run(name+", a person says", func(t *testing.T) {
			r, key := interrupted(t)
			by := r.seen(key)
			r.Faults.Next(idemtest.Settle, idemtest.LoseReply)
			require.NoError(t, r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Released, Steps: steps}, by))
			goesOn(t, r)
		})
		t.Run(name+", a probe says", func(t *testing.T) {
			r, _ := interrupted(t)
			s := r.probing(order, says(reconcile.ContinueWith(steps)))
			require.Equal(t, []notice.Kind{notice.Resolved}, r.sweep(s))
			goesOn(t, r)
		})
	}
}

// What is said of steps is refused if a later attempt could not read it, or if it does not say
// all: nothing changes then.
func TestAResolutionNamesEveryInterruptedStep(t *testing.T) {
	seven := reconcile.CompletedWith(7)
	for name, res := range map[string]reconcile.Resolution{
		"the step is done": {To: idem.Released,
			Steps: map[string]reconcile.Answer{"charge": seven, "reserve": seven}},
		"there is no such step": {To: idem.Released,
			Steps: map[string]reconcile.Answer{"charge": seven, "sip": seven}},
		"it names another one": {To: idem.Released, Steps: map[string]reconcile.Answer{"reserve": seven}},
		"no JSON": {To: idem.Released, Steps: map[string]reconcile.Answer{
			"charge": reconcile.CompletedWithEncoded(protocol.Encoded{Body: []byte("seven")})}},
		"encoded for requests": {To: idem.Released, Steps: map[string]reconcile.Answer{
			"charge": reconcile.CompletedWithEncoded(protocol.Encoded{Codec: "http", Body: []byte("7")})}},
		"it cannot be encoded": {To: idem.Released,
			Steps: map[string]reconcile.Answer{"charge": reconcile.CompletedWith(func() {})}},
		"no outcome": {To: idem.Released,
			Steps: map[string]reconcile.Answer{"charge": reconcile.StillUnknown(0)}},
		"steps of a step": {To: idem.Released,
			Steps: map[string]reconcile.Answer{"charge": reconcile.ContinueWith(map[string]reconcile.Answer{"x": seven})}},
		"a reference": {To: idem.Released,
			Steps: map[string]reconcile.Answer{"charge": seven.WithRef("ch_1")}},
		"what took effect has nothing undone": {To: idem.Completed, CompensatedManually: true},
		"the operation does not go on":        {To: idem.Completed, Steps: map[string]reconcile.Answer{"charge": seven}},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := interrupted(t)
			before := r.Record(key)
			require.ErrorAs(t, r.Resolve(t.Context(), key.ID(), res, alice), new(*idem.ConfigError))
			require.Equal(t, before, r.Record(key))
		})
	}
}

// The provider was asked with the operation's token, and does not know it: the charge has sent
// one of its own. That is no word about the charge, from a probe, a webhook or a person.
func TestAStepThatMayHaveTakenEffectKeepsAnOperationFromBeingReleased(t *testing.T) {
	r, key := newRig(t), order.Key("acme", "o-1")
	charges := map[string]int{} // what the provider knows, by token
	pay := func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "charge", func(ctx context.Context) (int, error) {
			charges[idem.Token(ctx)]++
			r.Crash()
			return 7, nil
		}, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
	}
	r.crash(key, pay)
	r.lapse()

	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: order,
		Probe: func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
			if charges[q.Token] > 0 {
				return reconcile.CompletedWith(7), nil
			}
			return reconcile.NotExecuted(), nil
		}}}})
	report := r.report(s)
	require.Equal(t, 1, report.Escalated)
	require.Contains(t, report.Actions[len(report.Actions)-1].Why, "a probe answers with ContinueWith")
	rec, rc := r.Record(key), r.Reconciler
	for name, res := range map[string]reconcile.Resolution{"of a record": {To: idem.Released},
		"of a resolution": {To: idem.Released, Replace: true}} {
		by := alice
		by.IfWrite = rec.Write
		err := rc.Resolve(t.Context(), key.ID(), res, by)
		require.ErrorIs(t, err, reconcile.ErrStepsUnnamed, name)
		require.ErrorContains(t, err, protocol.Token(key.ID(), "charge"), "it says what to ask with")
		require.NotEmpty(t, rc.Preview(rec, res).Refused)
	}
	require.Equal(t, rec, r.Record(key))

	// Operators are told what to ask with.
	require.Len(t, r.escalations, 1)
	require.Equal(t, []reconcile.InterruptedStep{{Name: "charge", Token: protocol.Token(key.ID(), "charge"),
		BegunAt: rec.Steps["charge"].BegunAt}}, r.escalations[0].Steps)
	require.Equal(t, 1, charges[r.escalations[0].Steps[0].Token])
	require.NoError(t, rc.Resolve(t.Context(), key.ID(), charged(reconcile.CompletedWith(7)), alice))
	r.gets(key, pay, 7)
	require.Equal(t, map[string]int{r.escalations[0].Steps[0].Token: 1}, charges)
}

// What an interrupted step did, as somebody has found out, is undone like all other steps: an
// attempt that fails before it reaches the step has not undone it.
func TestAStepThatAResolutionHasSettledMustBeUndone(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "w-1")
	undone := 0
	steps := &idem.StepConfig[int]{
		Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error { undone++; return nil },
	}
	r.killedInStep(key, "charge", steps)

	failed := reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}}
	r.owes(r.Resolve(t.Context(), key.ID(), failed, alice), unpaid("charge"))

	tookEffect := map[string]reconcile.Answer{"charge": reconcile.CompletedWith(7)}
	r.resolve(key, reconcile.Resolution{To: idem.Released, Steps: tookEffect})
	_, err := r.call(key, func(context.Context, int) (int, error) { return 0, idem.Permanent(errPlain) })
	require.ErrorContains(t, err, `step "charge" cannot be undone: this attempt did not reach it`)
	require.Equal(t, idem.Unknown, r.Record(key).State)
	require.Zero(t, undone)

	r.lapse()
	r.resolve(key, reconcile.Resolution{To: idem.Released})
	_, err = r.call(key, func(ctx context.Context, _ int) (int, error) {
		out, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { return 0, errPlain }, steps)
		require.NoError(t, err)
		require.Equal(t, 7, out)
		return 0, idem.Permanent(errPlain)
	})
	require.ErrorIs(t, err, errPlain)
	require.Equal(t, 1, undone)
	require.Equal(t, idem.Failed, r.Record(key).State)
}

// That no step was named is not that nothing was executed. An answer that the record does not take is
// escalated.
func TestAnAnswerThatNamesNoStepReleasesNothing(t *testing.T) {
	for name, steps := range map[string]map[string]reconcile.Answer{
		"none": nil, "empty": {}, "another": {"reserve": reconcile.CompletedWith(1)},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := interrupted(t)
			s := r.probing(order, says(reconcile.ContinueWith(steps)))
			require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
			require.Equal(t, idem.InProgress, r.Record(key).State)

			killed := refund.Key("acme", "r-1") // outside a step
			r.killed(killed)
			r.lapse()
			s = r.probing(refund, says(reconcile.ContinueWith(steps)))
			require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
			require.Equal(t, idem.Unknown, r.Record(killed).State)
		})
	}
}

// The history has a word for each step that a resolution settled, and no result.
func TestTheHistoryHasTheVerdictOfEachStep(t *testing.T) {
	failure := idem.Failure{Message: "declined"}
	for name, tc := range map[string]struct {
		res  reconcile.Resolution
		want map[string]protocol.StepVerdict
		why  string // of a probe that answers so
	}{
		"it took effect": {charged(reconcile.CompletedWith(7)),
			map[string]protocol.StepVerdict{"charge": protocol.StepTookEffect}, "that step charge took effect"},
		"it took effect, result unknown": {charged(reconcile.CompletedWithoutResult()), map[string]protocol.StepVerdict{
			"charge": protocol.StepWithoutResult}, "that step charge took effect, with a result that is not known"},
		"it was declined": {charged(reconcile.FailedWith(failure)),
			map[string]protocol.StepVerdict{"charge": protocol.StepFailed}, "that step charge failed"},
		"it had no effect": {charged(reconcile.NotExecuted()),
			map[string]protocol.StepVerdict{"charge": protocol.StepNotExecuted}, "that step charge had no effect"},
		"all was undone": {reconcile.Resolution{To: idem.Failed, Failure: &failure,
			CompensatedManually: true}, map[string]protocol.StepVerdict{"reserve": protocol.StepUndone}, ""},
		"the whole took effect": {reconcile.Resolution{To: idem.Completed}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := interrupted(t)
			r.resolve(key, tc.res)
			require.Equal(t, tc.want, r.last(key).Steps)
			if tc.why == "" {
				return
			}
			r = newRig(t)
			r.crashCharging(key)
			r.sweep(r.probing(order, says(reconcile.ContinueWith(tc.res.Steps))))
			require.Equal(t, tc.want, r.last(key).Steps)
			require.Equal(t, "the provider says "+tc.why, r.last(key).Why)
		})
	}
}

// last is the latest entry of the record's history.
func (r *rig) last(key idem.Key) protocol.Audit {
	r.t.Helper()
	entries, err := r.History(r.t.Context(), key.ID())
	require.NoError(r.t, err)
	require.NotEmpty(r.t, entries)
	return entries[len(entries)-1]
}

// A charge with a compensation was interrupted, and the provider has declined it. That the
// operation has failed is for operators, since nobody has said that there is nothing to undo; that the
// step has failed says it, and the next call fails and undoes the rest.
func TestADeclinedStepWithACompensationIsAnsweredByItsName(t *testing.T) {
	declined := reconcile.FailedWith(idem.Failure{Message: "declined"})
	for name, tc := range map[string]struct {
		answer reconcile.Answer
		want   notice.Kind
		state  idem.State
	}{
		"the operation has failed": {declined, notice.Escalated, idem.Unknown},
		"the step has failed": {reconcile.ContinueWith(map[string]reconcile.Answer{"charge": declined}),
			notice.Resolved, idem.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := newRig(t), order.Key("acme", "o-1")
			var undone []string
			work := func(ctx context.Context, _ int) (int, error) {
				r.done(ctx, "reserve", func() error { undone = append(undone, "reserve"); return nil })
				out, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { r.Crash(); return 7, nil },
					&idem.StepConfig[int]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error {
						undone = append(undone, "charge")
						return nil
					}})
				return out, idem.PermanentStep(err)
			}
			r.crash(key, work)
			r.lapse()
			s := r.probing(order, says(tc.answer))
			require.Equal(t, []notice.Kind{tc.want}, r.sweep(s))
			_, err := r.call(key, work)
			require.Error(t, err)
			require.Equal(t, tc.state, r.Record(key).State)
			if tc.state == idem.Failed {
				require.ErrorContains(t, err, "declined")
				require.Equal(t, []string{"reserve"}, undone)
			}
		})
	}
}

// The third step has failed for good and what the others did is being undone when the
// process dies. The provider still has the charge: that is no success.
func TestWhatIsBeingUndoneIsNotCompleted(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.crash(key, func(ctx context.Context, _ int) (int, error) {
		r.done(ctx, "charge", func() error { r.Crash(); return nil })
		return 0, idem.Permanent(errors.New("sold out"))
	})
	r.lapse()
	s := r.asking(says(reconcile.CompletedWith(1)))
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	require.Equal(t, idem.Unknown, r.Record(key).State)
	r.owes(reconcile.Resolve(t.Context(), r.Reconciler, key, 1, alice),
		reconcile.NotUndoneError{To: idem.Completed, Steps: []string{"charge"}})
	require.NoError(t, r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Released}, alice),
		"the next attempt goes on")
}

// All of it has been undone when the process dies, before the failure is recorded. The
// provider remembers the charge, and not that it was returned.
func TestWhatHasBeenUndoneIsNotCompletedByAProbe(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.crash(key, func(ctx context.Context, _ int) (int, error) {
		r.done(ctx, "charge", nothing)
		require.NoError(t, idem.Abort(ctx, errors.New("sold out")))
		r.Crash()
		return 0, nil
	})
	r.lapse()
	s := r.asking(says(reconcile.CompletedWith(1)))
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	require.Equal(t, idem.Unknown, r.Record(key).State)
	require.Contains(t, r.escalations[0].Reason, `what the steps ["charge"] did has been undone`)

	// Nor by a person or a webhook that brings the provider's word.
	before := r.Record(key)
	refused := reconcile.Resolve(t.Context(), r.Reconciler, key, 1, alice)
	r.owes(refused, reconcile.NotUndoneError{To: idem.Completed, Undone: []string{"charge"}})
	require.ErrorContains(t, refused, "set Resolution.CompensatedManually")
	require.Equal(t, before, r.Record(key))

	// Who means the response of the refusal says so.
	refusal, err := reconcile.Encode(402)
	require.NoError(t, err)
	res := reconcile.Resolution{To: idem.Completed, Result: &refusal, CompensatedManually: true}
	require.Equal(t, []string{"charge"}, r.Preview(before, res).Undo)
	r.resolve(key, res)
	require.Equal(t, map[string]protocol.StepVerdict{"charge": protocol.StepUndone}, r.last(key).Steps)
	r.gets(key, mustNotRun, 402)
}

// A handler that answers with a refusal has its steps undone. One that is recorded as the result
// would leave the charge, and tell the client that it was declined.
func TestARefusalIsNotRecordedOverStepsThatAreNotUndone(t *testing.T) {
	key := refund.Key("acme", "r-1")
	died := func(t *testing.T) *rig {
		r := newRig(t)
		_, err := r.call(key, func(ctx context.Context, _ int) (int, error) {
			r.done(ctx, "charge", nothing)
			return 0, errPlain
		})
		require.ErrorIs(t, err, errPlain)
		r.lapse()
		return r
	}
	refusal, err := reconcile.Encode(402)
	require.NoError(t, err)
	refusal.Failed = true
	t.Run("by a person", func(t *testing.T) {
		r := died(t)
		before := r.Record(key)
		res := reconcile.Resolution{To: idem.Completed, Result: &refusal}
		r.owes(r.Resolve(t.Context(), key.ID(), res, alice), unpaid("charge"))
		require.Equal(t, before, r.Record(key))
		require.Equal(t, []string{"charge"}, r.Preview(before, res).Undo)
		res.CompensatedManually = true
		r.resolve(key, res)
		require.Equal(t, map[string]protocol.StepVerdict{"charge": protocol.StepUndone}, r.last(key).Steps)
		r.gets(key, mustNotRun, 402)
	})
	t.Run("by a probe", func(t *testing.T) {
		r := died(t)
		require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(r.asking(says(reconcile.CompletedWithEncoded(refusal)))))
		require.Equal(t, idem.Unknown, r.Record(key).State)
		require.Contains(t, r.escalations[0].Reason, `["charge"]: undo them by hand`)
	})
	t.Run("nothing to undo", func(t *testing.T) {
		r, key := lapsed(t, refund)
		r.resolve(key, reconcile.Resolution{To: idem.Completed, Result: &refusal})
	})
}
