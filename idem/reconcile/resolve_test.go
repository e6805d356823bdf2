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

// seen is alice after she has looked at the record.
func (r *rig) seen(key idem.Key) reconcile.Change {
	by := alice
	by.IfWrite = r.Record(key).Write
	return by
}

func TestADecisionIsAboutTheRecordThatWasSeen(t *testing.T) {
	notHappened := reconcile.Resolution{To: idem.Released}
	key := refund.Key("acme", "r-1")

	t.Run("as it was", func(t *testing.T) {
		r := newRig(t)
		r.end(key, errPlain)
		by := r.seen(key)
		r.lapse()
		r.sweep(r.sweeper(reconcile.SweepOptions{})) // when it is looked at next is no news
		require.NoError(t, r.Resolve(t.Context(), key.ID(), notHappened, by))
	})
	t.Run("a lapsed claim", func(t *testing.T) {
		r, key := lapsed(t, refund)
		require.NoError(t, r.Resolve(t.Context(), key.ID(), notHappened, r.seen(key)))
		require.Equal(t, idem.Released, r.Record(key).State)
	})
	t.Run("somebody else was faster", func(t *testing.T) {
		r := newRig(t)
		r.end(key, errPlain)
		r.lapse()
		by := r.seen(key)
		r.resolve(key, notHappened)
		r.end(key, errPlain)
		r.lapse()
		before := r.Record(key)
		require.Equal(t, idem.Unknown, before.State)
		require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), notHappened, by), reconcile.ErrChanged)
		require.Equal(t, before, r.Record(key), "the second attempt may have taken effect")
	})
	t.Run("an outcome came", func(t *testing.T) {
		r := newRig(t)
		r.end(key, nil)
		by := alice
		by.IfWrite = "another"
		require.ErrorIs(t, r.Forget(t.Context(), key.ID(), by), reconcile.ErrChanged)
		require.NoError(t, r.Forget(t.Context(), key.ID(), r.seen(key)))
	})
}

func TestADecisionIsFoundInTheHistoryByItsID(t *testing.T) {
	r, key := ended(t, errPlain)
	r.lapse()
	for _, id := range []string{"a b", "a#b", "a.b", "\u00e4", strings.Repeat("a", 65)} {
		by := alice
		by.DecisionID = id
		require.ErrorAs(t, r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed}, by),
			new(*idem.ConfigError), id)
	}
	named, other := alice, alice
	named.DecisionID, other.DecisionID = "form-1", "form-10"
	require.NoError(t, r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed}, named))
	require.NoError(t, r.Resolve(t.Context(), key.ID(),
		reconcile.Resolution{To: idem.Completed, Replace: true}, r.seen(key)))
	history, err := r.History(t.Context(), key.ID())
	require.NoError(t, err)
	made := func(by reconcile.Change) (all []bool) {
		for _, a := range history {
			all = append(all, by.Made(a))
		}
		return all
	}
	require.Equal(t, []bool{true, false}, made(named))
	require.Equal(t, []bool{false, false}, made(other), "an ID that begins like it")
	require.Equal(t, []bool{false, false}, made(alice), "who has no ID finds none")
}

// The attempt that parked itself runs on to its lease's end: what the provider says before
// that does not hold any more when its answer arrives after it.
func TestAnAnswerFromBeforeTheLeasesEndReleasesNothing(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	rec := r.Record(key)
	require.NoError(t, r.Store.Finish(t.Context(), r.Clock.Now().Truncate(time.Millisecond), protocol.Finish{
		ID: rec.ID, Owner: rec.Owner, Write: "park", Watched: true,
		Ending: protocol.Ending{State: idem.Unknown, Uncertain: true},
	}))
	asked := 0
	s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
		if asked++; asked == 1 {
			r.lapse() // the answer takes its time
		}
		return reconcile.NotExecuted(), nil
	})
	require.Equal(t, []notice.Kind{notice.SweepPostponed}, r.sweep(s))
	require.Equal(t, idem.Unknown, r.Record(key).State)
	require.Equal(t, []notice.Kind{notice.Resolved}, r.sweep(s))
	require.Equal(t, 2, asked)
	require.Equal(t, idem.Released, r.Record(key).State)
}

// Somebody finds out that an attempt had no effect. Before that is said, another one has
// run, and of that one it does not hold.
func TestAResolutionIsAboutTheAttemptThatItNames(t *testing.T) {
	r, key := lapsed(t, refund)
	first := reconcile.Resolution{To: idem.Released, Attempt: r.Record(key).Attempt}
	r.resolve(key, first)
	r.killed(key)
	r.lapse()
	require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), first, alice), reconcile.ErrNotUnknown)
	require.Equal(t, idem.InProgress, r.Record(key).State)
	first.Attempt++
	r.resolve(key, first)
	require.Equal(t, idem.Released, r.Record(key).State)
}

// Somebody has found out that the attempt was declined. While that is being written another
// one says that it had no effect, and a call runs again, takes effect and does not know it.
func TestAResolutionIsAboutTheAttemptThatItFound(t *testing.T) {
	r, key := lapsed(t, refund)
	r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		require.NoError(t, r.Resolve(ctx, key.ID(), reconcile.Resolution{To: idem.Released},
			reconcile.Change{Actor: "webhook", Reason: "charge.failed"}))
		r.end(key, errPlain)
		return c.Do(ctx)
	})
	declined := reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}}
	require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), declined, alice), reconcile.ErrNotUnknown)
	require.Equal(t, idem.Unknown, r.Record(key).State)
	require.NoError(t, r.Resolve(t.Context(), key.ID(), declined, alice), "asked once more about the new attempt")
}

// What later calls could not read, or what says nothing, is refused before the store is asked.
func TestMistakesOfAResolution(t *testing.T) {
	r, key := ended(t, nil)
	json := func(body string) *protocol.Encoded { return &protocol.Encoded{Body: []byte(body)} }
	yes := reconcile.Resolution{To: idem.Completed, Result: json("1")}
	require.ErrorIs(t, r.Resolve(t.Context(), "absent", yes, alice), reconcile.ErrNotFound)
	require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), yes, alice), reconcile.ErrNotUnknown)
	r.Faults.Reset()
	for _, bad := range []reconcile.Resolution{
		{}, {To: idem.Unknown}, {To: idem.InProgress}, {To: idem.Failed},
		{To: idem.Failed, Failure: &idem.Failure{}, Result: json("1")}, {To: idem.Released, Result: json("1")},
		{To: idem.Completed, Result: json("receipt 7")}, {To: idem.Completed, Result: json("")},
		{To: idem.Released, CompensatedManually: true},
		{To: idem.Completed, Result: &protocol.Encoded{Body: []byte("1"), Check: func([]byte) error { return errPlain }}},
	} {
		require.ErrorAs(t, r.Resolve(t.Context(), key.ID(), bad, alice), new(*idem.ConfigError))
	}
	require.Empty(t, r.Faults.Calls())
	r.Faults.Next(idemtest.Get, idemtest.Unreadable, idemtest.Refuse)
	require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), yes, alice), idem.ErrRecordUnreadable)
	require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), yes, alice), idem.ErrStoreUnavailable)
}

// Whoever is refused is told what to do.
func TestRefusalsSayWhatToDo(t *testing.T) {
	r := newRig(t)
	by, key := reconcile.Change{Actor: "alice", Reason: "test"}, refund.Key("acme", "r-1")
	r.end(key, errPlain)
	rec := r.Record(key)
	require.Equal(t, idem.Unknown, rec.State)

	err := r.Forget(t.Context(), key.ID(), by)
	require.ErrorIs(t, err, reconcile.ErrOpen)
	require.ErrorContains(t, err, "this one is unknown: resolve it first")

	err = r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Released}, by)
	require.ErrorIs(t, err, reconcile.ErrTooEarly)
	require.ErrorContains(t, err, "which is over at "+rec.LeaseUntil.Add(idem.DefaultMargin).Format(time.RFC3339Nano))

	require.NoError(t, reconcile.Resolve(t.Context(), r.Reconciler, key, 7, by))
	err = reconcile.Resolve(t.Context(), r.Reconciler, key, 8, by)
	require.ErrorIs(t, err, reconcile.ErrNotUnknown)
	require.ErrorContains(t, err, "resolved as completed before: set Resolution.Replace")
	again := reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "no"}, Replace: true}
	require.ErrorContains(t, r.Resolve(t.Context(), key.ID(), again, by), "Replace is set, and Change.IfWrite is empty")
	require.NoError(t, r.Resolve(t.Context(), key.ID(), again, r.seen(key)))
}

// A resolution that is refused leaves a lapsed claim as it is: the next call goes on with it,
// and no operator has decided anything.
func TestARefusedResolutionLeavesTheClaim(t *testing.T) {
	seven, err := reconcile.Encode(7)
	require.NoError(t, err)
	tooLarge := func(context.Context, *idemtest.Call) error { return &protocol.TooLargeError{Size: 4, Limit: 3} }
	for name, tc := range map[string]struct {
		res   reconcile.Resolution
		store idemtest.Fault
		want  any
	}{
		"steps are not undone": {reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}},
			idemtest.Pass, reconcile.ErrNotUndone},
		"about another attempt": {reconcile.Resolution{To: idem.Released, Attempt: 7}, idemtest.Pass,
			reconcile.ErrNotUnknown},
		"encoded for other calls": {reconcile.Resolution{To: idem.Completed, Result: &protocol.Encoded{Codec: "http",
			Check: func([]byte) error { return nil }}}, idemtest.Pass, new(*idem.ConfigError)},
		"too large for the store": {reconcile.Resolution{To: idem.Completed, Result: &seven}, tooLarge,
			new(*protocol.TooLargeError)},
		"to nothing": {reconcile.Resolution{To: idem.Unknown}, idemtest.Pass, new(*idem.ConfigError)},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := interrupted(t)
			before := r.Record(key)
			by := r.seen(key)
			r.Faults.Next(idemtest.Settle, tc.store)
			err := r.Resolve(t.Context(), key.ID(), tc.res, by)
			r.Faults.Heal()
			if sentinel, ok := tc.want.(error); ok {
				require.ErrorIs(t, err, sentinel)
			} else {
				require.ErrorAs(t, err, tc.want)
			}
			require.Equal(t, before, r.Record(key))
			require.Empty(t, r.changes(key))

			s := new(orderEffects)
			r.ends(key, shopping(s, func() {}))
			require.Equal(t, &orderEffects{shipped: 1, asked: 1}, s)

			r = newRig(t)
			r.crashCharging(key)
			by = r.seen(key)
			r.Faults.Next(idemtest.Settle, tc.store)
			require.Error(t, r.Resolve(t.Context(), key.ID(), tc.res, by))
			r.Faults.Heal()
			require.NoError(t, r.Resolve(t.Context(), key.ID(), charged(reconcile.NotExecuted()), by),
				"the same look still counts")
		})
	}
}

// The reply is lost, or somebody else writes first: a lapsed claim has one outcome, and the
// change is told once.
func TestALapsedClaimIsResolvedInOneWrite(t *testing.T) {
	key := refund.Key("acme", "r-1")
	released := reconcile.Resolution{To: idem.Released}
	for name, tc := range map[string]struct {
		fault idemtest.Fault
		seen  bool
	}{
		"it lands": {idemtest.Pass, true}, "its reply is lost": {idemtest.LoseReply, true},
		"its reply is lost, and nothing was seen": {idemtest.LoseReply, false},
		"its request is lost":                     {idemtest.LoseRequest, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := lapsed(t, refund)
			by := alice
			if tc.seen {
				by = r.seen(key)
			}
			r.Faults.Next(idemtest.Settle, tc.fault)
			require.NoError(t, r.Resolve(t.Context(), key.ID(), released, by))
			require.Equal(t, idem.Released, r.Record(key).State)
			require.Equal(t, []protocol.Change{protocol.ChangeResolved}, r.changes(key))
		})
	}
	for name, rival := range map[string]func(r *rig){
		"a sweep parks it":             func(r *rig) { r.sweep(r.sweeper(reconcile.SweepOptions{})) },
		"a call parks it":              func(r *rig) { r.fails(key, mustNotRun, idem.ErrOutcomeUnknown) },
		"its attempt renews the lease": func(r *rig) { require.NoError(r.t, r.renew(r.Record(key), idem.DefaultLease)) },
	} {
		t.Run(name, func(t *testing.T) {
			r, key := lapsed(t, refund)
			by := r.seen(key)
			var after *idem.Record
			r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
				rival(r)
				after = r.Record(key)
				return c.Do(ctx)
			})
			require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), released, by), reconcile.ErrChanged)
			require.Equal(t, after, r.Record(key))
		})
	}
}

// OnAbandoned says what becomes of work that goes on, and nothing of what is unknown.
func TestAnUnknownOutcomeWithoutProbeIsEscalatedSoon(t *testing.T) {
	r, key := lapsed(t, refund)
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{
		Operation: refund, OnAbandoned: func(context.Context, reconcile.Question) error { return nil },
	}}})
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.SweepPostponed}, r.sweep(s))
	require.Equal(t, r.Record(key).OpenSince.Add(reconcile.DefaultEscalateAfter), r.Record(key).Due)
	r.Clock.Advance(reconcile.DefaultEscalateAfter)
	require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
}

// charged releases an order, with a word about its charge.
func charged(a reconcile.Answer) reconcile.Resolution {
	return reconcile.Resolution{To: idem.Released, Steps: map[string]reconcile.Answer{"charge": a}}
}

// again is the resolution over another one.
func again(res reconcile.Resolution) reconcile.Resolution {
	res.Replace = true
	return res
}

// An operator has recorded a wrong outcome of the charge, and records it again: the order that goes
// on pays once, and nothing is shipped that is not paid for.
func TestTheOutcomeOfAStepIsReplaced(t *testing.T) {
	key := order.Key("acme", "o-1")
	failure := idem.Failure{Message: "declined"}
	took, declined, absent := reconcile.CompletedWith(7), reconcile.FailedWith(failure), reconcile.NotExecuted()
	for name, tc := range map[string]struct {
		first, second reconcile.Resolution
		want          orderEffects
		out           int
		said          protocol.StepVerdict
	}{
		"it had no effect": {charged(took), charged(absent), orderEffects{charged: 1, shipped: 1},
			7, protocol.StepNotExecuted},
		"it was declined": {charged(took), charged(declined), orderEffects{returned: 1},
			0, protocol.StepFailed},
		"it was not declined": {charged(declined), charged(took), orderEffects{shipped: 1},
			7, protocol.StepTookEffect},
		"its result is known": {charged(reconcile.CompletedWithoutResult()), charged(took),
			orderEffects{shipped: 1}, 7, protocol.StepTookEffect},
		"its result is another one": {charged(reconcile.CompletedWith(8)), charged(took), orderEffects{shipped: 1},
			7, protocol.StepTookEffect},
		"its result is not known": {charged(took), charged(reconcile.CompletedWithoutResult()),
			orderEffects{returned: 1}, 0, protocol.StepWithoutResult},
		"its large result is another one": {charged(reconcile.CompletedWith(make([]int, 20_000))), charged(took),
			orderEffects{shipped: 1}, 7, protocol.StepTookEffect},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRig(t), new(orderEffects)
			r.crashCharging(key)
			r.resolve(key, tc.first)
			d := r.Preview(r.Record(key), again(tc.second))
			require.Empty(t, d.Refused)
			require.Equal(t, []string{"charge"}, d.Steps)
			r.Faults.Next(idemtest.Settle, idemtest.LoseReply)
			require.NoError(t, r.Resolve(t.Context(), key.ID(), again(tc.second), r.seen(key)))
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
					&idem.EffectConfig{Semantics: idem.AtMostOnce,
						Compensate: func(context.Context) error { s.returned++; return nil }})
				if err != nil || tc.after != nil {
					return 0, errors.Join(err, tc.after)
				}
				return 7, idem.StepEffect(ctx, "ship", func(context.Context) error { s.shipped++; return nil }, nil)
			}
			r.killedIn(key, "charge")
			r.resolve(key, charged(reconcile.CompletedWithoutResult()))
			require.Contains(t, r.explain(key).SameInput,
				"Unless these return nothing, most handlers then fail the operation for good")
			_, err := r.call(key, pay)
			require.ErrorIs(t, err, tc.after)
			require.Equal(t, tc.want, *s)
		})
	}
}

// What a step owes survives that it was said to have failed: it must be undone once it is said
// to have taken effect.
func TestAStepThatTookEffectAfterAllMustBeUndone(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "w-1")
	r.killedInStep(key, "charge", undoing[int](new(orderEffects)))
	failed := again(reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "sold out"}})
	r.resolve(key, charged(reconcile.FailedWith(idem.Failure{Message: "declined"})))
	require.Empty(t, r.Preview(r.Record(key), failed).Refused, "a charge that failed owes nothing")
	require.NoError(t, r.Resolve(t.Context(), key.ID(), again(charged(reconcile.CompletedWith(7))), r.seen(key)))
	r.owes(r.Resolve(t.Context(), key.ID(), failed, r.seen(key)), unpaid("charge"))
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
		"the same word": {charged(took), charged(took), nil, "released before, and nothing would change"},
		"no step is left": {charged(absent), charged(absent),
			nil, `Steps has "charge", which the earlier resolution has removed`},
		"it was released before": {charged(absent), reconcile.Resolution{To: idem.Released},
			nil, "released before, and nothing would change"},
		"an attempt runs": {charged(took), charged(absent), func(r *rig) { r.killed(key) },
			"is in_progress by its attempt 2"},
		"an attempt has gone by it": {charged(took), charged(absent), func(r *rig) { _, _ = r.call(key, fails) },
			"is released by its attempt 2"},
		"an attempt has gone by it and died in another step": {charged(took), charged(absent),
			func(r *rig) { r.killedIn(key, "ship") },
			`Steps has "charge", whose outcome is recorded`},
		"an attempt has completed": {charged(took), charged(absent),
			func(r *rig) { _, _ = r.call(key, shopping(new(orderEffects), func() {})) },
			"is completed by its attempt 2"},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := interrupted(t)
			r.resolve(key, tc.first)
			looked := r.seen(key)
			if tc.between != nil {
				tc.between(r)
			}
			before := r.Record(key)
			if tc.between != nil {
				require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), again(tc.second), looked), reconcile.ErrChanged)
			}
			require.ErrorContains(t, r.Resolve(t.Context(), key.ID(), again(tc.second), r.seen(key)), tc.want)
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
	r.crash(key, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, step, func(context.Context) (int, error) { r.Crash(); return 7, nil }, conf)
	})
	r.lapse()
}

// The reply to a replacing resolution is lost, and somebody else replaces it: the retry is no
// leave to decide again.
func TestARetryReplacesNoLaterDecision(t *testing.T) {
	r, key := lapsed(t, refund)
	require.NoError(t, reconcile.Resolve(t.Context(), r.Reconciler, key, 1, alice))
	seven, err := reconcile.Encode(7)
	require.NoError(t, err)
	r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		_ = c.Do(ctx)
		require.NoError(t, r.Resolve(ctx, key.ID(),
			again(reconcile.Resolution{To: idem.Completed, Result: &seven}), r.seen(key)))
		return c.Lost()
	})
	by := r.seen(key)
	for range 2 { // alice tries once more
		require.ErrorIs(t, r.Resolve(t.Context(), key.ID(), again(reconcile.Resolution{To: idem.Released}), by),
			reconcile.ErrChanged)
		require.Equal(t, idem.Completed, r.Record(key).State, "the later decision counts")
	}
}

// What a resolution to completed has removed is remembered where it must be undone.
func TestAResolutionThatIsReplacedHasNotForgottenWhatMustBeUndone(t *testing.T) {
	key := order.Key("acme", "o-1")
	failed := again(reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}})
	for name, between := range map[string]func(r *rig){
		"at once":                   func(*rig) {},
		"after another replacement": func(r *rig) { r.replace(key, reconcile.Resolution{To: idem.Completed}) },
		"after an extension": func(r *rig) {
			require.NoError(r.t, r.Extend(r.t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := interrupted(t)
			require.NoError(t, reconcile.Resolve(t.Context(), r.Reconciler, key, 7, alice))
			between(r)
			require.Equal(t, []string{"reserve"}, r.explain(key).Decisions[1].Undo)
			r.owes(r.Resolve(t.Context(), key.ID(), failed, r.seen(key)), unpaid("reserve"))
			undone := failed
			undone.CompensatedManually = true
			r.replace(key, undone)
			require.Equal(t, map[string]protocol.StepVerdict{"reserve": protocol.StepUndone}, r.last(key).Steps)
			require.Empty(t, r.explain(key).Decisions[1].Undo)
			require.Empty(t, r.Record(key).Steps)
		})
	}
	for _, extended := range []bool{false, true} {
		t.Run(fmt.Sprintf("it never took effect, extended %v", extended), func(t *testing.T) {
			r, s := newRig(t), new(orderEffects)
			r.crashCharging(key)
			require.NoError(t, reconcile.Resolve(t.Context(), r.Reconciler, key, 7, alice))
			if extended {
				require.NoError(t, r.Extend(t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
			}
			r.replace(key, reconcile.Resolution{To: idem.Released,
				Steps: map[string]reconcile.Answer{"reserve": reconcile.NotExecuted()}})
			r.gets(key, shopping(s, func() {}), 7)
			require.Equal(t, orderEffects{reserved: 1, charged: 1, shipped: 1}, *s)
		})
	}
}

// The reference of a decision that is replaced goes with it, and the attempt's own stays.
func TestTheReferenceOfADecisionGoesWithIt(t *testing.T) {
	key := refund.Key("acme", "r-1")
	for name, tc := range map[string]struct{ attempts, wrong, left string }{
		"the decision's":             {"", "re_wrong", ""},
		"the decision's, over one":   {"re_1", "re_wrong", ""},
		"the attempt's":              {"re_1", "", "re_1"},
		"the attempt's, said again":  {"re_1", "re_1", ""},
		"there was none, nor is one": {"", "", ""},
	} {
		for _, extended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, extended %v", name, extended), func(t *testing.T) {
				r := newRig(t)
				_, err := idem.Do(t.Context(), r.Engine, key, 1, func(ctx context.Context, _ int) (int, error) {
					if tc.attempts != "" {
						require.NoError(t, idem.SetReference(ctx, tc.attempts))
					}
					return 0, errPlain
				})
				require.ErrorIs(t, err, errPlain)
				r.lapse()
				r.resolve(key, reconcile.Resolution{To: idem.Completed, Ref: tc.wrong})
				if extended {
					require.NoError(t, r.Extend(t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
				}
				r.replace(key, reconcile.Resolution{To: idem.Released})
				require.Equal(t, tc.left, r.Record(key).Ref)
			})
		}
	}
}

// replace replaces the resolution of the record.
func (r *rig) replace(key idem.Key, res reconcile.Resolution) {
	r.t.Helper()
	require.NoError(r.t, r.Resolve(r.t.Context(), key.ID(), again(res), r.seen(key)))
}

// A release without a reference takes away that of the release that it replaces.
func TestAWrongReferenceOfAReleaseCanBeTakenAway(t *testing.T) {
	r, key := interrupted(t)
	first := charged(reconcile.CompletedWith(7))
	first.Ref = "pay_of_another_customer"
	r.resolve(key, first)
	require.Equal(t, first.Ref, r.Record(key).Ref)
	require.NoError(t, r.Resolve(t.Context(), key.ID(), again(charged(reconcile.CompletedWith(7))), r.seen(key)))
	require.Empty(t, r.Record(key).Ref)
}

// What is said of its step says nothing of what a handler does outside of it.
func TestAReleaseAfterAStepSaysThatTheHandlerRunsAgain(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.crash(key, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "mail", func(context.Context) (int, error) { r.Crash(); return 7, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
	})
	r.lapse()
	said := reconcile.Resolution{To: idem.Released, Steps: map[string]reconcile.Answer{"mail": reconcile.CompletedWith(7)}}
	d := r.Preview(r.Record(key), said)
	require.Empty(t, d.Refused)
	require.False(t, d.Repeats)
	require.Contains(t, d.Caution, "outside of its steps may happen twice")
}
