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

// A process has died in its at-most-once charge. What is found out about the charge is its
// outcome, and the next call does what is previewed: no customer pays for what is never sent. The history
// has a word for each step, and no result.
func TestAnOrderGoesOnAfterTheStepThatWasInterrupted(t *testing.T) {
	const reserved = "The handler runs, attempt 2, and skips the steps that are recorded: reserve"
	failure := idem.Failure{Message: "declined"}
	type verdicts = map[string]protocol.StepVerdict
	for name, tc := range map[string]struct {
		res     reconcile.Resolution
		then    string
		want    orderEffects
		out     int
		err     string
		history verdicts
		why     string // of a probe that answers so
	}{
		"it took effect": {charged(reconcile.CompletedWith(7)),
			"The handler runs, attempt 2, and skips the steps that are recorded: charge, reserve. The result of charge is " +
				"recorded as given, and its form is not checked, since no record says which type a step returns: the handler " +
				"ignores a member that its type does not have, and reads a missing one and null as empty.",
			orderEffects{shipped: 1}, 7, "<nil>", verdicts{"charge": protocol.StepTookEffect}, "took effect"},
		"it had no effect": {charged(reconcile.NotExecuted()), reserved + ". It runs charge again.",
			orderEffects{charged: 1, shipped: 1}, 7, "<nil>", verdicts{"charge": protocol.StepNotExecuted}, "had no effect"},
		"it was declined": {charged(reconcile.FailedWith(failure)), reserved + ", and gets the recorded failure of: charge.",
			orderEffects{returned: 1}, 0, "declined", verdicts{"charge": protocol.StepFailed}, "failed"},
		"it took effect, result unknown": {charged(reconcile.CompletedWithoutResult()),
			reserved + ", and gets an error for the steps that took effect with a result that is not known: charge. " +
				"Unless these return nothing, most handlers then fail the operation for good: what other steps did is undone, " +
				"and what these did is not.",
			orderEffects{returned: 1}, 0, "result", verdicts{"charge": protocol.StepWithoutResult},
			"took effect, with a result that is not known"},
		"the whole took effect, result unknown": {reconcile.Resolution{To: idem.Completed},
			"An error: it took effect, and its result is not recorded. A message is acknowledged. The handler does not " +
				"run. Steps that are not recorded never run.", orderEffects{}, 0, "its result could not be kept", nil, ""},
		"the whole failed, and was undone": {
			reconcile.Resolution{To: idem.Failed, Failure: &failure, CompensatedManually: true},
			"The recorded failure. A message is acknowledged. The handler does not run.",
			orderEffects{}, 0, "declined", verdicts{"reserve": protocol.StepUndone}, ""},
	} {
		goesOn := func(t *testing.T, r *rig, key idem.Key) {
			t.Helper()
			require.Equal(t, tc.res.To, r.Record(key).State)
			require.Equal(t, tc.history, r.last(key).Steps)
			s := new(orderEffects)
			out, err := r.call(key, shopping(s, func() {}))
			require.Equal(t, tc.out, out)
			require.Equal(t, tc.want, *s)
			require.Contains(t, fmt.Sprint(err), tc.err)
		}
		t.Run(name+", a person says", func(t *testing.T) {
			r, key := interrupted(t)
			d := r.Preview(r.Record(key), tc.res)
			require.Empty(t, d.Refused)
			require.Equal(t, tc.then, d.Then)
			by := r.seen(key)
			r.Faults.Next(idemtest.Settle, idemtest.LoseReply)
			require.NoError(t, r.Resolve(t.Context(), key.ID(), tc.res, by))
			goesOn(t, r, key)
		})
		if tc.why == "" {
			continue
		}
		t.Run(name+", a probe says", func(t *testing.T) {
			r, key := interrupted(t)
			s := r.probing(order, says(reconcile.ContinueWith(tc.res.Steps)))
			require.Equal(t, []notice.Kind{notice.Resolved}, r.sweep(s))
			require.Equal(t, "the provider says that step charge "+tc.why, r.last(key).Why)
			goesOn(t, r, key)
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
	r.fails(key, func(ctx context.Context, _ int) (int, error) {
		out, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { return 0, errPlain }, steps)
		require.NoError(t, err)
		require.Equal(t, 7, out)
		return 0, idem.Permanent(errPlain)
	}, errPlain)
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
		r.fails(key, func(ctx context.Context, _ int) (int, error) {
			r.done(ctx, "charge", nothing)
			return 0, errPlain
		}, errPlain)
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

// An operator has typed the charge's result in another shape than its function's, which no attempt
// can read. The attempt has done nothing with it, and it is recorded again.
func TestAnUnreadableResultOfAStepIsReplaced(t *testing.T) {
	seven, absent := charged(reconcile.CompletedWith(7)), charged(reconcile.NotExecuted())
	eight, err := reconcile.Encode(8)
	require.NoError(t, err)
	died := func(r *rig, key idem.Key) {
		r.killed(key)
		r.lapse()
	}
	for name, tc := range map[string]struct {
		op      idem.Operation
		between func(r *rig, key idem.Key)
		again   reconcile.Resolution
		want    orderEffects
		out     int
	}{
		"its result":                        {order, nil, seven, orderEffects{shipped: 1}, 7},
		"its result, to replace a word":     {order, nil, again(seven), orderEffects{shipped: 1}, 7},
		"its result, after a crash between": {order, died, seven, orderEffects{shipped: 1}, 7},
		"it had no effect":                  {order, nil, absent, orderEffects{charged: 1, shipped: 1}, 7},
		"what the whole order did": {order, nil,
			reconcile.Resolution{To: idem.Completed, Result: &eight}, orderEffects{}, 8},
		"its result, of an operation that is not repeatable": {refund, nil, seven, orderEffects{shipped: 1}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, key := newRig(t), new(orderEffects), tc.op.Key("acme", "o-1")
			pay := func(ctx context.Context, _ int) (int, error) {
				conf := &idem.StepConfig[int]{Semantics: idem.AtMostOnce}
				out, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { s.charged++; return 7, nil }, conf)
				if err != nil {
					return 0, idem.PermanentStep(err)
				}
				return out, idem.StepEffect(ctx, "ship", func(context.Context) error { s.shipped++; return nil }, nil)
			}
			r.killedIn(key, "charge")
			began := r.Record(key).Steps["charge"].BegunAt
			require.False(t, began.IsZero())
			r.resolve(key, charged(reconcile.CompletedWith(strings.Repeat("ch_1", 500))))
			if tc.between != nil {
				tc.between(r, key)
			}
			r.fails(key, pay, idem.ErrRecordUnreadable)
			r.fails(key, pay, idem.ErrOutcomeUnknown)
			require.Equal(t, orderEffects{}, *s)
			r.lapse()

			// Operators get the token to ask with, and that the outcome is to be recorded again.
			sw := r.probing(tc.op, says(reconcile.CannotBeKnown("gone")))
			r.sweep(sw)
			require.Len(t, r.escalations, 1)
			token := protocol.Token(key.ID(), "charge")
			require.Equal(t, []reconcile.InterruptedStep{{Name: "charge", Token: token, BegunAt: began}}, r.escalations[0].Steps)
			e := r.explain(key)
			require.Contains(t, e.Summary, "cannot go on with what was recorded of step charge")
			require.Equal(t, []string{"charge"}, e.Decisions[2].Steps)
			err = r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Released}, alice)
			require.ErrorIs(t, err, reconcile.ErrStepsUnnamed)
			require.ErrorContains(t, err, token)

			require.Empty(t, r.Preview(r.Record(key), tc.again).Refused)
			r.Faults.Next(idemtest.Settle, idemtest.LoseReply)
			require.NoError(t, r.Resolve(t.Context(), key.ID(), tc.again, r.seen(key)))
			r.gets(key, pay, tc.out)
			require.Equal(t, tc.want, *s)
		})
	}
}

// resolvedCharge is a rig with an order whose process died in its at-most-once charge, and a resolution of
// the charge. A compensation counts.
func resolvedCharge(t *testing.T, compensates bool, charge reconcile.Answer) (*rig, *orderEffects, idem.Key) {
	t.Helper()
	r, s, key := newRig(t), new(orderEffects), order.Key("acme", "o-1")
	conf := &idem.StepConfig[int]{Semantics: idem.AtMostOnce}
	if compensates {
		conf = undoing[int](s)
	}
	r.killedInStep(key, "charge", conf)
	r.resolve(key, charged(charge))
	return r, s, key
}

// Whatever becomes of the write that makes an interrupted step of it again, what no attempt can
// use is recorded again, and the step does not run before that.
func TestAnUnreadableResultIsReplacedWhateverBecomesOfTheWrite(t *testing.T) {
	t.Run("it is of another type", func(t *testing.T) {
		replacedWhateverBecomesOfTheWrite(t, reconcile.CompletedWith("ch_1"), charge[int])
	})
	t.Run("a compensation needs it", func(t *testing.T) {
		replacedWhateverBecomesOfTheWrite(t, reconcile.CompletedWithoutResult(), refundable[int])
	})
}

func replacedWhateverBecomesOfTheWrite(t *testing.T, word reconcile.Answer,
	pay func(*orderEffects, int) func(context.Context, int) (int, error),
) {
	for name, fault := range map[string]func(r *rig, key idem.Key) idemtest.Fault{
		"its reply is lost":   func(*rig, idem.Key) idemtest.Fault { return idemtest.LoseReply },
		"its request is lost": func(*rig, idem.Key) idemtest.Fault { return idemtest.LoseRequest },
		"the process dies before it": func(r *rig, _ idem.Key) idemtest.Fault {
			return func(_ context.Context, c *idemtest.Call) error { r.Crash(); return c.Lost() }
		},
		"the process dies after it": func(r *rig, _ idem.Key) idemtest.Fault {
			return func(ctx context.Context, c *idemtest.Call) error { _ = c.Do(ctx); r.Crash(); return c.Lost() }
		},
		"a stricter call parks before it": func(r *rig, key idem.Key) idemtest.Fault {
			return func(ctx context.Context, c *idemtest.Call) error {
				park := protocol.Lapse(r.Record(key), protocol.Event{Kind: protocol.EventClaim}, "park", "a call")
				require.NoError(r.t, r.Store.Settle(ctx, r.Clock.Now(), park))
				return c.Do(ctx)
			}
		},
		"another attempt has taken over": func(r *rig, key idem.Key) idemtest.Fault {
			return func(ctx context.Context, c *idemtest.Call) error {
				r.lapse()
				_, err := idem.Do(ctx, r.Engine, key, 1, pay(new(orderEffects), 7))
				require.Error(r.t, err)
				return c.Do(ctx)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, key := resolvedCharge(t, true, word)
			r.Faults.Next(idemtest.RecordStep, fault(r, key))
			_ = r.deliver(key, pay(s, 7))
			r.lapse()
			if r.Record(key).State != idem.Unknown {
				r.fails(key, pay(s, 7), nil)
			}
			r.lapse()
			require.Equal(t, idem.Unknown, r.Record(key).State)
			require.Equal(t, []string{"charge"}, r.explain(key).Decisions[2].Steps)
			r.resolve(key, charged(reconcile.CompletedWith(7)))
			r.ends(key, pay(s, 7))
			require.Equal(t, orderEffects{shipped: 1}, *s)
		})
	}
}

// A handler that takes no notice of the step's error is stopped all the same: nothing may use
// what can be replaced.
func TestNoStepRunsBehindWhatNoAttemptCanGoOnWith(t *testing.T) {
	for name, word := range map[string]reconcile.Answer{
		"it is of another type":   reconcile.CompletedWith("ch_1"),
		"a compensation needs it": reconcile.CompletedWithoutResult(),
	} {
		t.Run(name, func(t *testing.T) {
			r, s, key := resolvedCharge(t, true, word)
			r.fails(key, func(ctx context.Context, in int) (int, error) {
				_, _ = refundable(s, 7)(ctx, in)
				require.Error(t, ctx.Err())
				return 0, idem.StepEffect(ctx, "ship", func(context.Context) error { s.shipped++; return nil }, nil)
			}, nil)
			require.Equal(t, idem.Unknown, r.Record(key).State)
			require.Equal(t, orderEffects{}, *s)
		})
	}
}

// A resolution that somebody makes before that write counts.
func TestAResolutionBeforeTheWriteOfAnUnreadableResultCounts(t *testing.T) {
	r, s, key := resolvedCharge(t, false, reconcile.CompletedWith("ch_1"))
	r.Faults.Next(idemtest.RecordStep, func(ctx context.Context, c *idemtest.Call) error {
		park := protocol.Lapse(r.Record(key), protocol.Event{Kind: protocol.EventClaim}, "park", "a call")
		require.NoError(t, r.Store.Settle(ctx, r.Clock.Now(), park))
		require.NoError(t, reconcile.Resolve(ctx, r.Reconciler, key, 8, alice))
		return c.Do(ctx)
	})
	_, _ = r.call(key, charge(s, 7))
	r.gets(key, charge(s, 7), 8)
	require.Equal(t, orderEffects{}, *s)
}

// Operators have said that the step took effect. The step's own question is not asked over that,
// whatever became of the write: its answer would make the charge a second time.
func TestAResolvedStepIsNotAskedAbout(t *testing.T) {
	for name, fault := range map[string]func(r *rig) (idemtest.Method, idemtest.Fault){
		"it is parked": func(*rig) (idemtest.Method, idemtest.Fault) { return idemtest.RecordStep, idemtest.Pass },
		"the reply is lost": func(*rig) (idemtest.Method, idemtest.Fault) {
			return idemtest.RecordStep, idemtest.LoseReply
		},
		"the request is lost": func(*rig) (idemtest.Method, idemtest.Fault) {
			return idemtest.RecordStep, idemtest.LoseRequest
		},
		"the process dies after it": func(r *rig) (idemtest.Method, idemtest.Fault) {
			return idemtest.Finish, func(_ context.Context, c *idemtest.Call) error { r.Crash(); return c.Lost() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, key := newRig(t), new(orderEffects), order.Key("acme", "o-1")
			pay := func(ctx context.Context, _ int) (int, error) {
				return idem.Step(ctx, "charge",
					func(context.Context) (int, error) { s.charged++; return 7, nil }, &idem.StepConfig[int]{
						Semantics: idem.AtMostOnce, NotFoundFinalAfter: 10 * time.Minute,
						Interrupted: func(context.Context, time.Time) (int, error) { return 0, idem.NotExecuted(errPlain) },
					})
			}
			r.killedIn(key, "charge")
			r.Clock.Advance(time.Hour)
			r.resolve(key, charged(reconcile.CompletedWith("ch_1")))
			r.Faults.Next(fault(r))
			_, _ = r.call(key, pay)
			r.Restart()
			r.lapse()
			r.fails(key, pay, nil)
			r.lapse()
			require.Equal(t, idem.Unknown, r.Record(key).State)
			r.resolve(key, charged(reconcile.CompletedWith(7)))
			r.gets(key, pay, 7)
			require.Zero(t, s.charged)
		})
	}
}

// An attempt has used what was recorded, and a later one cannot read it, since the step's type
// has changed. It is not replaced: the charge is made no second time.
func TestAResultThatAnAttemptHasReadIsNotReplaced(t *testing.T) {
	for name, first := range map[string]func(r *rig, key idem.Key, s *orderEffects){
		"it has failed after that": func(r *rig, key idem.Key, s *orderEffects) {
			r.fails(key, func(ctx context.Context, in int) (int, error) {
				_, err := charge(s, 7)(ctx, in)
				return 0, errors.Join(err, errPlain)
			}, errPlain)
		},
		"its process has died after that": func(r *rig, key idem.Key, s *orderEffects) {
			r.crash(key, func(ctx context.Context, in int) (int, error) {
				_, err := charge(s, 7)(ctx, in)
				require.NoError(r.t, err)
				r.Crash()
				return 0, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, key := resolvedCharge(t, false, reconcile.CompletedWith(7))
			first(r, key, s)
			r.lapse()
			two := charge(s, receipt{"ch_2"})
			for range 2 {
				r.fails(key, two, idem.ErrRecordUnreadable)
				r.lapse()
				require.Error(t, r.Resolve(t.Context(), key.ID(), charged(reconcile.NotExecuted()), alice))
			}
			r.ends(key, charge(s, 7)) // code that reads both
			require.Equal(t, orderEffects{shipped: 2}, *s)
		})
	}
}

// An attempt has continued without a result, since its step returned nothing. A later one, whose step
// returns something, cannot undo it: it is not replaced either.
func TestAStepThatWasUsedWithoutAResultIsNotReplaced(t *testing.T) {
	for name, reads := range map[string]bool{"it uses it": true, "its reply is lost": false} {
		t.Run(name, func(t *testing.T) {
			r, s, key := resolvedCharge(t, true, reconcile.CompletedWithoutResult())
			if !reads {
				r.Faults.Next(idemtest.RecordStep, idemtest.LoseReply)
			}
			r.fails(key, func(ctx context.Context, in int) (int, error) {
				_, err := refundable(s, struct{}{})(ctx, in)
				return 0, errors.Join(err, errPlain)
			}, nil)
			require.Equal(t, reads, s.shipped == 1)
			r.lapse()
			r.fails(key, refundable(s, receipt{"ch_2"}), new(*idem.StepUnavailableError))
			r.lapse()
			require.Error(t, r.Resolve(t.Context(), key.ID(), charged(reconcile.NotExecuted()), alice))
			require.Zero(t, s.charged+s.returned)
		})
	}
}

// Nothing goes by what was said before it is known that it can no longer be unsaid.
func TestNothingUsesAResolvedResultBeforeThatIsRecorded(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"its reply is lost": idemtest.LoseReply,
		"its request is lost": idemtest.LoseRequest} {
		t.Run(name, func(t *testing.T) {
			r, s, key := resolvedCharge(t, false, reconcile.CompletedWith(7))
			r.Faults.Next(idemtest.RecordStep, fault)
			r.fails(key, charge(s, 7), idem.ErrStoreUnavailable)
			require.Equal(t, orderEffects{}, *s)
			r.ends(key, charge(s, 7))
			require.Equal(t, orderEffects{shipped: 1}, *s)
		})
	}
}

// A decoder that panics at what was said, and parts of it that are lost, are no other case than
// what does not fit.
func TestAResultAtWhichADecoderPanicsOrThatIsDamagedIsReplaced(t *testing.T) {
	for name, said := range map[string]struct {
		out   any
		fault idemtest.Fault
	}{
		"its decoder panics":  {"ch_1", idemtest.Pass},
		"it is damaged there": {map[string]string{"id": strings.Repeat("ch_1", 1000)}, idemtest.Unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, key := resolvedCharge(t, false, reconcile.CompletedWith(said.out))
			r.Faults.Next(idemtest.StepResult, said.fault)
			r.fails(key, charge(s, picky{"ch_2"}), idem.ErrRecordUnreadable)
			r.lapse()
			r.resolve(key, charged(reconcile.CompletedWith(map[string]string{"id": "ch_1"})))
			r.ends(key, charge(s, picky{"ch_2"}))
			require.Equal(t, orderEffects{shipped: 1}, *s)
		})
	}
}

// The state of a step is nothing that a handler's error says, and nothing that is cut with the
// error of a record that is nearly full.
func TestWhetherAResultCanBeReadIsNotInTheError(t *testing.T) {
	t.Run("its error is cut", func(t *testing.T) {
		r, key := newRig(t), order.Key("acme", "o-1")
		const name = "charge the customer's card"
		r.killedIn(key, name)
		said := func(a reconcile.Answer) reconcile.Resolution {
			return reconcile.Resolution{To: idem.Released, Steps: map[string]reconcile.Answer{name: a}}
		}
		r.resolve(key, said(reconcile.CompletedWith("ch_1")))
		r.Faults.Next(idemtest.Finish,
			func(context.Context, *idemtest.Call) error { return &protocol.TooLargeError{Size: 4, Limit: 3} })
		r.fails(key, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.Step(ctx, name, func(context.Context) (int, error) { return 7, nil },
				&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			return 0, coded{err, "declined"}
		}, idem.ErrRecordUnreadable)
		require.Equal(t, "declined", r.Record(key).Failure.Code, "the handler's own")
		r.lapse()
		r.resolve(key, said(reconcile.CompletedWith(7)))
	})
	t.Run("its error has a code", func(t *testing.T) {
		r, s, key := newRig(t), new(orderEffects), refund.Key("acme", "r-1")
		r.fails(key, func(ctx context.Context, in int) (int, error) {
			_, err := charge(s, 7)(ctx, in)
			require.NoError(t, err)
			return 0, coded{errPlain, "idem:unread:charge"}
		}, errPlain)
		r.lapse()
		require.NotContains(t, r.explain(key).Summary, "cannot read")
		require.ErrorContains(t, r.Resolve(t.Context(), key.ID(), charged(reconcile.NotExecuted()), alice),
			"whose outcome is recorded")
	})
}

// A probe that answers what no attempt can read would answer the same for ever: operators get the
// question instead.
func TestAProbeWithAnUnreadableResultIsNotAskedAgain(t *testing.T) {
	r, key, asked := newRig(t), refund.Key("acme", "r-1"), 0
	r.killedIn(key, "charge")
	s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
		asked++
		return reconcile.ContinueWith(map[string]reconcile.Answer{"charge": reconcile.CompletedWith("ch_1")}), nil
	})
	for range 3 {
		r.sweep(s)
		r.fails(key, charge(new(orderEffects), 7), nil)
		r.Clock.Advance(24 * time.Hour)
	}
	require.Equal(t, 1, asked)
	require.Len(t, r.escalations, 1)
	require.Equal(t, "the handler cannot go on with what was said of charge", r.escalations[0].Reason)
	require.False(t, r.escalations[0].Steps[0].BegunAt.IsZero())
}
