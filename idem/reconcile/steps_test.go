package reconcile_test

import (
	"context"
	"encoding/json"
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

// A process has died in its at-most-once charge. What is found out about the charge, or recorded again over
// what was wrong, is its outcome, and the next call does what is previewed: no customer pays for what is never
// sent. The history has a word for each step, and no result.
func TestAnOrderGoesOnAfterTheStepThatWasInterrupted(t *testing.T) {
	const reserved = "The handler runs, attempt 2, and skips the steps that are recorded: reserve"
	type verdicts = map[string]protocol.StepVerdict
	said := func(v protocol.StepVerdict) verdicts { return verdicts{"charge": v} }
	shipped := orderEffects{shipped: 1}
	large := reconcile.CompletedWith(make([]int, 20_000))
	for name, tc := range map[string]struct {
		first   *reconcile.Answer // about the charge, which res replaces
		res     reconcile.Resolution
		then    string
		want    orderEffects
		out     int
		err     string
		history verdicts
		why     string // of a probe that answers so
	}{
		"it took effect": {nil, charged(tookEffect),
			"The handler runs, attempt 2, and skips the steps that are recorded: charge, reserve. The result of charge is " +
				"recorded as given, and its form is not checked, since no record says which type a step returns: the handler " +
				"ignores a member that its type does not have, and reads a missing one and null as empty.",
			shipped, 7, "<nil>", said(protocol.StepTookEffect), "took effect"},
		"it had no effect": {nil, charged(notExecuted), reserved + ". It runs charge again.",
			orderEffects{charged: 1, shipped: 1}, 7, "<nil>", said(protocol.StepNotExecuted), "had no effect"},
		"it was declined": {nil, charged(hasFailed), reserved + ", and gets the recorded failure of: charge.",
			orderEffects{returned: 1}, 0, "declined", said(protocol.StepFailed), "failed"},
		"it took effect, result unknown": {nil, charged(withoutResult),
			reserved + ", and gets an error for the steps that took effect with a result that is not known: charge. " +
				"Unless these return nothing, most handlers then fail the operation for good: what other steps did is undone, " +
				"and what these did is not.",
			orderEffects{returned: 1}, 0, "result", said(protocol.StepWithoutResult),
			"took effect, with a result that is not known"},
		"the whole took effect, result unknown": {nil, toCompleted,
			"An error: it took effect, and its result is not recorded. A message is acknowledged. The handler does not " +
				"run. Steps that are not recorded never run.", orderEffects{}, 0, "its result could not be kept", nil, ""},
		"the whole failed, and was undone": {nil, failedByHand,
			"The recorded failure. A message is acknowledged. The handler does not run.",
			orderEffects{}, 0, "declined", verdicts{"reserve": protocol.StepUndone}, ""},
		"it had no effect after all": {&tookEffect, charged(notExecuted), "",
			orderEffects{charged: 1, shipped: 1}, 7, "<nil>", said(protocol.StepNotExecuted), ""},
		"it was declined after all": {&tookEffect, charged(hasFailed), "",
			orderEffects{returned: 1}, 0, "declined", said(protocol.StepFailed), ""},
		"its result is not known after all": {&tookEffect, charged(withoutResult), "",
			orderEffects{returned: 1}, 0, "result", said(protocol.StepWithoutResult), ""},
		"it was not declined": {&hasFailed, charged(tookEffect), "", shipped, 7, "<nil>", said(protocol.StepTookEffect), ""},
		"its result is known by now": {&withoutResult, charged(tookEffect), "",
			shipped, 7, "<nil>", said(protocol.StepTookEffect), ""},
		"its large result is another one": {&large, charged(tookEffect), "",
			shipped, 7, "<nil>", said(protocol.StepTookEffect), ""},
	} {
		goesOn := func(r *rig) {
			r.play(is(tc.res.To), last(tc.history))
			out, err := r.call(r.key, shop(r))
			require.Equal(r.t, tc.out, out)
			require.Contains(r.t, fmt.Sprint(err), tc.err)
			r.play(did(tc.want))
		}
		said := func(r *rig) {
			res := tc.res
			if tc.first != nil {
				r.play(resolves(charged(*tc.first)))
				res.Replace = true
			}
			d := r.Preview(r.record(), res)
			require.Empty(r.t, d.Refused)
			require.Contains(r.t, d.Then, tc.then)
			require.Equal(r.t, res.To == idem.Released, len(d.Steps) == 1, "%q", d.Steps)
			r.play(look, next(idemtest.Settle, idemtest.LoseReply), resolves(res))
		}
		play(t, story{name + ", a person says", order, []move{interrupted, said, goesOn}})
		if tc.why != "" {
			play(t, story{name + ", a probe says", order, []move{
				interrupted, asks(reconcile.ContinueWith(tc.res.Steps)), sweeps(notice.Resolved),
				func(r *rig) { require.Equal(r.t, "the provider says that step charge "+tc.why, r.last().Why) }, goesOn,
			}})
		}
	}
}

// What is said of a step's outcome counts until an attempt has used it, and what no attempt can use is
// recorded again before the step could run a second time.
func TestWhatIsSaidOfAStep(t *testing.T) {
	undo := &idem.StepConfig[int]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error { return nil }}
	unreadable := reconcile.CompletedWith("ch_1") // the step returns a number
	long := reconcile.CompletedWith(strings.Repeat("ch_1", 500))
	shipped := orderEffects{shipped: 1}
	nothingDone := did(orderEffects{})
	// parked is a call by a stricter deployment that parks the claim.
	parked := func(r *rig) {
		park := protocol.Lapse(r.record(), protocol.Event{Kind: protocol.EventClaim}, "park", "a call")
		require.NoError(r.t, r.Store.Settle(r.t.Context(), r.Clock.Now(), park))
	}
	// delivered is a call in a process of its own.
	delivered := func(w work) move { return func(r *rig) { _ = r.deliver(r.key, w(r)) } }

	// An operator has typed the charge's result in another shape than its function's, which no attempt
	// can read. The attempt has done nothing with it, and it is recorded again.
	for name, tc := range map[string]struct {
		op      idem.Operation
		between []move
		again   reconcile.Resolution
		want    orderEffects
		out     int
	}{
		"its result":                        {order, nil, charged(tookEffect), shipped, 7},
		"its result, to replace a word":     {order, nil, again(charged(tookEffect)), shipped, 7},
		"its result, after a crash between": {order, []move{lapsed}, charged(tookEffect), shipped, 7},
		"it had no effect":                  {order, nil, charged(notExecuted), orderEffects{charged: 1, shipped: 1}, 7},
		"what the whole order did":          {order, nil, to(8), orderEffects{}, 8},
		"its result, not repeatable":        {refund, nil, charged(tookEffect), shipped, 7},
	} {
		var began time.Time
		play(t, story{"no attempt can read it: " + name, tc.op, []move{
			killedIn("charge"), func(r *rig) { began = r.record().Steps["charge"].BegunAt; require.False(r.t, began.IsZero()) },
			resolves(charged(long)), times(1, tc.between...),
			fails(pay, idem.ErrRecordUnreadable), fails(pay, idem.ErrOutcomeUnknown), nothingDone, lapse,
			// Operators get the token to ask with, and that the outcome is to be recorded again.
			asks(cannotBeKnown), sweep, asked(0), escalated(1, "the handler cannot go on with what was said of charge"),
			explains("cannot go on with what was recorded of step charge"),
			func(r *rig) {
				token := protocol.Token(r.key.ID(), "charge")
				require.Equal(r.t, []reconcile.InterruptedStep{{Name: "charge", Token: token, BegunAt: began}},
					r.escalations[0].Steps)
				require.Equal(r.t, []string{"charge"}, r.explain(r.key).Decisions[2].Steps)
				refuses(toReleased, token)(r)
				require.Empty(r.t, r.Preview(r.record(), tc.again).Refused)
			},
			refuses(toReleased, reconcile.ErrStepsUnnamed),
			next(idemtest.Settle, idemtest.LoseReply), look, resolves(tc.again), gets(pay, tc.out), did(tc.want),
		}})
	}

	// Whatever becomes of the write that makes an interrupted step of it again.
	for why, tc := range map[string]struct {
		word reconcile.Answer
		work
	}{
		"it is of another type": {unreadable, charge(7)}, "a compensation needs it": {withoutResult, refundable(7)},
	} {
		for name, write := range map[string]move{
			"its reply is lost":               next(idemtest.RecordStep, idemtest.LoseReply),
			"its request is lost":             next(idemtest.RecordStep, idemtest.LoseRequest),
			"the process dies before it":      diesBefore(idemtest.RecordStep),
			"the process dies after it":       diesAfter(idemtest.RecordStep),
			"a stricter call parks before it": before(idemtest.RecordStep, parked),
			"another attempt has taken over":  before(idemtest.RecordStep, lapse, fails(tc.work, nil)),
		} {
			play(t, story{why + ", " + name, order, []move{
				killedInStep("charge", undo), resolves(charged(tc.word)), write, delivered(tc.work), lapse,
				func(r *rig) {
					if r.record().State != idem.Unknown {
						r.play(fails(tc.work, nil), lapse)
					}
					require.Equal(r.t, []string{"charge"}, r.explain(r.key).Decisions[2].Steps)
				},
				is(idem.Unknown), resolves(charged(tookEffect)), gets(tc.work, 1), did(shipped),
			}})
		}
		play(t, story{why + ", and the handler takes no notice of the error", order, []move{
			killedInStep("charge", undo), resolves(charged(tc.word)),
			fails(func(r *rig) handler {
				return func(ctx context.Context, in int) (int, error) {
					_, _ = refundable(7)(r)(ctx, in)
					require.Error(r.t, ctx.Err(), "nothing may use what can be replaced")
					return 0, r.did.ship(ctx)
				}
			}, nil),
			is(idem.Unknown), nothingDone,
		}})
	}

	// Operators have said that the step took effect. The step's own question is not asked over that: its
	// answer would make the charge a second time.
	asksItself := paying(&idem.StepConfig[int]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: 10 * time.Minute,
		Interrupted: func(context.Context, time.Time) (int, error) { return 0, idem.NotExecuted(errPlain) }})
	for name, write := range map[string]move{
		"it is parked":              next(idemtest.RecordStep, idemtest.Pass),
		"the reply is lost":         next(idemtest.RecordStep, idemtest.LoseReply),
		"the request is lost":       next(idemtest.RecordStep, idemtest.LoseRequest),
		"the process dies after it": diesBefore(idemtest.Finish),
	} {
		play(t, story{"the step does not ask by itself: " + name, order, []move{
			killedIn("charge"), wait(time.Hour), resolves(charged(unreadable)), write, delivered(asksItself),
			lapse, fails(asksItself, nil), lapse, is(idem.Unknown),
			resolves(charged(tookEffect)), gets(asksItself, 7), did(shipped),
		}})
	}

	// An attempt has used what was recorded, and a later one cannot read it, since the step's type
	// has changed. It is not replaced: the charge is made no second time.
	for name, first := range map[string]move{
		"it has failed": fails(chargeWith(7, false, errPlain), errPlain),
		"its process has died": func(r *rig) {
			r.crash(r.key, func(ctx context.Context, in int) (int, error) {
				_, err := charge(7)(r)(ctx, in)
				require.NoError(r.t, err)
				r.did.shipped--
				r.Crash()
				return 0, nil
			})
		},
	} {
		other := charge(receipt{"ch_2"})
		play(t, story{"an attempt has read it: " + name, order, []move{
			killedIn("charge"), resolves(charged(tookEffect)), first, lapse,
			times(2, fails(other, idem.ErrRecordUnreadable), lapse, refuses(charged(notExecuted), nil)),
			gets(charge(7), 1), did(shipped), // by code that reads both
		}})
	}

	// An attempt has continued without a result, since its step returned nothing. A later one, whose step
	// returns something, cannot undo it: it is not replaced either.
	for name, reply := range map[string]idemtest.Fault{
		"it uses it": idemtest.Pass, "its reply is lost": idemtest.LoseReply,
	} {
		play(t, story{"an attempt has used it without a result: " + name, order, []move{
			killedInStep("charge", undo), resolves(charged(withoutResult)), next(idemtest.RecordStep, reply),
			fails(chargeWith(struct{}{}, true, errPlain), nil), lapse,
			fails(refundable(receipt{"ch_2"}), new(*idem.StepUnavailableError)), lapse,
			refuses(charged(notExecuted), nil), nothingDone,
		}})
	}

	// Nothing uses what was said before it is recorded that it can no longer be replaced.
	for name, fault := range map[string]idemtest.Fault{"reply": idemtest.LoseReply, "request": idemtest.LoseRequest} {
		play(t, story{"it is not used before that is recorded: the " + name + " is lost", order, []move{
			killedIn("charge"), resolves(charged(tookEffect)), next(idemtest.RecordStep, fault),
			fails(charge(7), idem.ErrStoreUnavailable), nothingDone, gets(charge(7), 1),
		}})
	}

	// A decoder that panics at what was said, and parts of it that are lost, are the same case as what does not fit.
	for name, said := range map[string]struct {
		out   any
		fault idemtest.Fault
	}{
		"its decoder panics": {"ch_1", idemtest.Pass},
		"it is damaged":      {map[string]string{"id": strings.Repeat("ch_1", 1000)}, idemtest.Unreadable},
	} {
		play(t, story{name, order, []move{
			killedIn("charge"), resolves(charged(reconcile.CompletedWith(said.out))),
			next(idemtest.StepResult, said.fault), fails(charge(picky{"ch_2"}), idem.ErrRecordUnreadable), lapse,
			resolves(charged(reconcile.CompletedWith(map[string]string{"id": "ch_1"}))),
			gets(charge(picky{"ch_2"}), 1), did(shipped),
		}})
	}

	tooLarge := func(context.Context, *idemtest.Call) error { return &protocol.TooLargeError{Size: 4, Limit: 3} }
	anOrderOf := func(out int) move {
		return func(r *rig) { require.NoError(r.t, reconcile.Resolve(r.t.Context(), r.Reconciler, r.key, out, alice)) }
	}
	play(t, []story{
		{"a resolution before the write counts", order, []move{
			killedIn("charge"), resolves(charged(unreadable)), before(idemtest.RecordStep, parked, anOrderOf(8)),
			func(r *rig) { _, _ = r.call(r.key, charge(7)(r)) }, gets(charge(7), 8), nothingDone,
		}},
		// The state of a step is nothing that is cut with the error of a record that is nearly full, and nothing
		// that a handler's error says.
		{"whether it can be read is not in the error that is cut", order, []move{
			killedIn("charge"), resolves(charged(unreadable)), next(idemtest.Finish, tooLarge),
			fails(func(r *rig) handler {
				return func(ctx context.Context, in int) (int, error) {
					_, err := charge(7)(r)(ctx, in)
					return 0, coded{err, "declined"}
				}
			}, idem.ErrRecordUnreadable),
			func(r *rig) { require.Equal(r.t, "declined", r.record().Failure.Code, "the handler's own") },
			lapse, resolves(charged(tookEffect)),
		}},
		{"whether it can be read is not in the error's code", refund, []move{
			fails(chargeWith(7, false, coded{errPlain, "idem:unread:charge"}), errPlain), lapse,
			func(r *rig) { require.NotContains(r.t, r.explain(r.key).Summary, "cannot read") },
			refuses(charged(notExecuted), "whose outcome is recorded"),
		}},
		{"a probe whose answer no attempt can read is not asked again", refund, []move{
			killedIn("charge"), asks(continues(unreadable)), times(3, sweep, fails(charge(7), nil), wait(24*time.Hour)),
			asked(1), escalated(1, "the handler cannot go on with what was said of charge"),
		}},
	}...)
}

// A compensation needs the result of its step. Without it the next attempt is parked before it goes
// on, and a person says the result then, undoes all by hand, or decides that it took effect.
func TestAStepWithoutAResultThatHasACompensation(t *testing.T) {
	undo := &idem.StepConfig[int]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error { return nil }}
	says := func(r *rig) {
		require.Equal(r.t, "The handler runs, attempt 2. Unless these return nothing, the operation is parked again as "+
			"soon as it comes to them, since compensations need their results, which are to be said then: charge.",
			r.Preview(r.record(), charged(withoutResult)).Then)
	}
	parked := func(r *rig) {
		r.play(fails(refundable(7), new(*idem.StepUnavailableError)), is(idem.Unknown), did(orderEffects{}), lapse,
			explains("cannot go on with what was recorded of step charge"))
	}
	for name, then := range map[string][]move{
		"it is undone by hand": {resolves(failedByHand)},
		"it took effect":       {resolves(toCompleted)},
		"its result is said":   {resolves(charged(tookEffect)), gets(refundable(7), 1)},
		"it is said once more": {resolves(charged(withoutResult)), parked},
	} {
		play(t, story{name, order, append([]move{
			killedInStep("charge", undo), says, resolves(charged(withoutResult)), parked, refuses(toFailed, unpaid("charge")),
		}, then...)})
	}
}

// Steps that took effect must be undone before the operation fails, and what is being undone is not completed.
func TestWhatStepsDidIsUndone(t *testing.T) {
	undo := &idem.StepConfig[int]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error { return nil }}
	// charges does this after its charge, whose process dies then.
	charges := func(undo func(r *rig) error, then func(context.Context) error) move {
		return func(r *rig) {
			r.crash(r.key, func(ctx context.Context, _ int) (int, error) {
				r.done(ctx, "charge", func() error { return undo(r) })
				if err := then(ctx); err != nil {
					return 0, err
				}
				r.Crash()
				return 0, nil
			})
			r.lapse()
		}
	}
	stays := func(*rig) error { return nil }
	dies := func(r *rig) error { r.Crash(); return nil }
	soldOut := errors.New("sold out")
	charged := func(answer reconcile.Answer) reconcile.Resolution { return settled("charge", answer) }
	byHand := func(res reconcile.Resolution) reconcile.Resolution { res.CompensatedManually = true; return res }
	toUndo := func(res reconcile.Resolution, want ...string) move {
		return func(r *rig) { require.Equal(r.t, want, r.Preview(r.record(), res).Undo) }
	}
	undone := func(step string) move { return last(map[string]protocol.StepVerdict{step: protocol.StepUndone}) }

	play(t, []story{
		// The third step has failed for good and what the others did is being undone when the process dies.
		// The provider still has the charge: that is no success.
		{"what is being undone is not completed", refund, []move{
			charges(dies, func(context.Context) error { return idem.Permanent(soldOut) }),
			asks(tookEffect), sweeps(notice.SweepParked, notice.Escalated), is(idem.Unknown),
			refuses(to(1), reconcile.NotUndoneError{To: idem.Completed, Steps: []string{"charge"}}),
			resolves(toReleased), // the next attempt goes on
		}},
		// The provider remembers the charge, and not that it was returned.
		{"what has been undone is completed with a refusal alone", refund, []move{
			charges(stays, func(ctx context.Context) error { return idem.Abort(ctx, soldOut) }),
			asks(tookEffect), sweeps(notice.SweepParked, notice.Escalated), is(idem.Unknown),
			escalated(1, `what the steps ["charge"] did has been undone`),
			refuses(to(1), reconcile.NotUndoneError{To: idem.Completed, Undone: []string{"charge"}}),
			refuses(to(1), "set Resolution.CompensatedManually"),
			toUndo(byHand(to(402)), "charge"), resolves(byHand(to(402))), undone("charge"), gets(mustNotRun, 402),
		}},
		// A handler that answers with a refusal has its steps undone. One that is recorded as the result
		// would leave the booking, and say to the client that it was declined.
		{"a refusal is not recorded by a person", refund, []move{
			fails(stepThen(errPlain), errPlain), lapse, refuses(refusal(), unpaid("book")), toUndo(refusal(), "book"),
			resolves(byHand(refusal())), undone("book"), gets(mustNotRun, 402),
		}},
		{"a refusal is not recorded by a probe", refund, []move{
			fails(stepThen(errPlain), errPlain), lapse,
			asks(reconcile.CompletedWithEncoded(*refusal().Result)), sweeps(notice.Escalated), is(idem.Unknown),
			escalated(1, `["book"]: undo them by hand`),
		}},
		{"a refusal with nothing to undo is recorded", refund, []move{lapsed, resolves(refusal())}},
		{"a failure is not recorded by a probe", refund, []move{
			charges(stays, func(context.Context) error { return nil }),
			asks(hasFailed), sweeps(notice.SweepParked, notice.Escalated), escalated(1, `"charge"`),
			func(r *rig) {
				q := r.questions[0]
				require.Equal(r.t, []reconcile.Step{{Name: "charge", Token: protocol.Token(q.ID, "charge")}}, q.Steps)
				got, err := q.StepResult(r.t.Context(), "charge")
				require.NoError(r.t, err)
				require.Equal(r.t, `"charge 7"`, string(got))
				got, err = r.StepResult(r.t.Context(), r.record(), "charge")
				require.NoError(r.t, err)
				require.Equal(r.t, `"charge 7"`, string(got), "operators see what is to be undone")
			},
		}},
		// What an interrupted step did, as somebody has found out, is undone like all other steps: an
		// attempt that fails before it reaches the step has not undone it.
		{"a step that a resolution has settled", webhook, []move{
			killedInStep("charge", undo), refuses(toFailed, unpaid("charge")), resolves(charged(tookEffect)),
			fails(returns(0, idem.Permanent(errPlain)), `step "charge" cannot be undone: this attempt did not reach it`),
			is(idem.Unknown), lapse, resolves(toReleased), fails(chargeWith(7, true, idem.Permanent(errPlain)), errPlain),
			is(idem.Failed), did(orderEffects{returned: 1}),
		}},
		{"a step that took effect after all", webhook, []move{
			killedInStep("charge", undo), resolves(charged(hasFailed)),
			func(r *rig) {
				require.Empty(r.t, r.Preview(r.record(), again(toFailed)).Refused, "a charge that failed owes nothing")
			},
			resolves(again(charged(tookEffect))), refuses(again(toFailed), unpaid("charge")),
		}},
	}...)

	// A charge with a compensation was interrupted, and the provider has declined it. That the operation has
	// failed is for operators, since that leaves open what there is to undo; that the step has failed says it,
	// and the next call fails and undoes the rest.
	reserveAndCharge := func(r *rig) handler {
		return func(ctx context.Context, _ int) (int, error) {
			r.done(ctx, "reserve", func() error { r.did.returned++; return nil })
			out, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { r.Crash(); return 7, nil },
				&idem.StepConfig[int]{Semantics: idem.AtMostOnce,
					Compensate: func(context.Context, int) error { return errors.New("there is no charge") }})
			return out, idem.PermanentStep(err)
		}
	}
	died := func(r *rig) { r.crash(r.key, reserveAndCharge(r)); r.lapse() }
	play(t, story{"a declined step: the operation has failed", order, []move{
		died, asks(hasFailed), sweeps(notice.Escalated), fails(reserveAndCharge, nil), is(idem.Unknown),
	}}, story{"a declined step: the step has failed", order, []move{
		died, asks(continues(hasFailed)), sweeps(notice.Resolved), fails(reserveAndCharge, "declined"), is(idem.Failed),
		did(orderEffects{returned: 1}),
	}})

	// What a resolution to completed has removed is remembered where it must be undone.
	decisions := func(want ...string) move {
		return func(r *rig) { require.Equal(r.t, want, r.explain(r.key).Decisions[1].Undo) }
	}
	for name, between := range map[string]move{
		"at once": times(0), "after another resolution": resolves(again(toCompleted)), "after an extension": extends,
	} {
		play(t, story{"a resolution that is replaced " + name, order, []move{
			interrupted, resolves(to(7)), between, decisions("reserve"), refuses(again(toFailed), unpaid("reserve")),
			resolves(again(failedByHand)), undone("reserve"), decisions(), func(r *rig) { require.Empty(r.t, r.record().Steps) },
		}}, story{"a resolution that is withdrawn " + name, order, []move{
			interrupted, resolves(to(7)), between, resolves(again(settled("reserve", notExecuted))),
			gets(shop, 7), did(orderEffects{reserved: 1, charged: 1, shipped: 1}),
		}})
	}

	// A step that returns nothing has no result that could be unknown: it took effect, and the
	// operation goes on, or it is undone like others.
	for name, tc := range map[string]struct {
		end  error
		want orderEffects
	}{
		"goes on": {nil, orderEffects{shipped: 1}}, "fails": {idem.Permanent(errPlain), orderEffects{returned: 1}},
	} {
		play(t, story{"a step returns nothing, and the operation " + name, order, []move{
			killedIn("charge"), resolves(charged(withoutResult)),
			func(r *rig) {
				require.Contains(r.t, r.explain(r.key).SameInput,
					"Unless these return nothing, most handlers then fail the operation for good")
				_, err := r.call(r.key, func(ctx context.Context, _ int) (int, error) {
					err := idem.StepEffect(ctx, "charge", func(context.Context) error { r.did.charged++; return nil },
						&idem.EffectConfig{Semantics: idem.AtMostOnce,
							Compensate: func(context.Context) error { r.did.returned++; return nil }})
					if err != nil || tc.end != nil {
						return 0, errors.Join(err, tc.end)
					}
					return 7, r.did.ship(ctx)
				})
				require.ErrorIs(r.t, err, tc.end)
			},
			did(tc.want),
		}})
	}
}

// A word about the operation is none about a step, which has sent a token of its own: neither from a probe, nor
// a webhook, nor a person.
func TestAnInterruptedStepMustBeNamed(t *testing.T) {
	charges := map[string]int{} // what the provider knows, by token
	charge := func(r *rig) handler {
		return func(ctx context.Context, _ int) (int, error) {
			return idem.Step(ctx, "charge", func(ctx context.Context) (int, error) {
				charges[idem.Token(ctx)]++
				r.Crash()
				return 7, nil
			}, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
		}
	}
	play(t, story{"it was charged with the step's token", order, []move{
		func(r *rig) { r.crash(r.key, charge(r)) },
		asking(func(r *rig, _ int) (reconcile.Answer, error) {
			if charges[r.questions[0].Token] > 0 {
				return tookEffect, nil
			}
			return notExecuted, nil
		}),
		sweeps(), // its lease runs
		lapse, sweeps(notice.Escalated), escalated(1, "a probe answers with ContinueWith"),
		refuses(toReleased, reconcile.ErrStepsUnnamed), refuses(again(toReleased), reconcile.ErrStepsUnnamed),
		func(r *rig) {
			token := protocol.Token(r.key.ID(), "charge")
			refuses(toReleased, token)(r) // it says what to ask with
			require.NotEmpty(r.t, r.Preview(r.record(), toReleased).Refused)
			require.Equal(r.t, []reconcile.InterruptedStep{{Name: "charge", Token: token,
				BegunAt: r.record().Steps["charge"].BegunAt}}, r.escalations[0].Steps)
			r.play(resolves(charged(tookEffect)), gets(charge, 7), settledForGood)
			require.Equal(r.t, map[string]int{token: 1}, charges)
		},
	}})

	play(t, story{"the provider is asked with the step's token", order, []move{
		func(r *rig) { r.crash(r.key, charge(r)) },
		asking(func(r *rig, _ int) (reconcile.Answer, error) {
			require.Equal(r.t, protocol.Token(r.key.ID(), "charge"), r.questions[0].Steps[0].Token)
			return tookEffect, nil
		}),
		lapse, sweeps(notice.Resolved), settledForGood, gets(mustNotRun, 7),
	}})

	// That no step was named is not that nothing was executed. An answer that the record does not take is escalated.
	for name, steps := range map[string]map[string]reconcile.Answer{
		"none": nil, "empty": {}, "another": {"reserve": reconcile.CompletedWith(1)},
	} {
		answer := reconcile.ContinueWith(steps)
		play(t, story{name + ", in a step", order, []move{
			interrupted, asks(answer), sweeps(notice.Escalated), is(idem.InProgress),
		}}, story{name + ", outside of a step", refund, []move{
			lapsed, asks(answer), sweeps(notice.SweepParked, notice.Escalated), is(idem.Unknown),
		}})
	}
}

type receipt struct{ ID string }

// picky is a result whose own decoder panics at what it does not know.
type picky struct{ ID string }

func (p *picky) UnmarshalJSON(b []byte) error {
	var m map[string]string
	_ = json.Unmarshal(b, &m)
	p.ID = m["id"][:3]
	return nil
}

func (p picky) MarshalJSON() ([]byte, error) { return json.Marshal(map[string]string{"id": p.ID}) }

// coded is a handler's error with a code of its own.
type coded struct {
	error
	code string
}

func (c coded) ErrorCode() string { return c.code }
func (c coded) Unwrap() error     { return c.error }
