package reconcile_test

import (
	"context"
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

// A decision is about the attempt and the record that it was made for: the faster one counts.
func TestTheFirstDecisionCounts(t *testing.T) {
	// reaches checks that what others do before the resolution arrives stays, and refuses it.
	reaches := func(res reconcile.Resolution, want error, others ...move) move {
		return func(r *rig) {
			var after *idem.Record
			r.play(before(idemtest.Settle, append(others, func(r *rig) { after = r.record() })...))
			require.ErrorIs(r.t, r.resolve(res), want)
			require.Equal(r.t, after, r.record())
		}
	}
	first := reconcile.Resolution{To: idem.Released, Attempt: 1}
	second := reconcile.Resolution{To: idem.Released, Attempt: 2}
	var parkedUntil time.Time
	stories := []story{
		{"the record is as it was seen", refund, []move{
			ends(errPlain), look, lapse, sweep, resolves(toReleased), // when it is looked at next is no news
		}},
		{"a lapsed claim is as it was seen", refund, []move{lapsed, look, resolves(toReleased), is(idem.Released)}},
		{"a second attempt may have taken effect", refund, []move{
			ends(errPlain), lapse, resolves(toReleased), ends(errPlain), lapse,
			func(r *rig) { r.looked = "the first attempt's" }, refuses(toReleased, reconcile.ErrChanged), is(idem.Unknown),
		}},
		// Somebody finds out that an attempt had no effect. Before that is said, another one has run, and of
		// that one it does not hold.
		{"the resolution names its attempt", refund, []move{
			lapsed, resolves(first), lapsed, refuses(first, reconcile.ErrNotUnknown), is(idem.InProgress),
			resolves(second), is(idem.Released),
		}},
		// Somebody has found out that the attempt was declined. While that is being written another
		// one says that it had no effect, and a call runs again, takes effect and does not know it.
		{"another attempt has run by then", refund, []move{
			lapsed, reaches(toFailed, reconcile.ErrNotUnknown, resolves(toReleased), ends(errPlain)), is(idem.Unknown),
			resolves(toFailed), // asked once more about the new attempt
		}},
		{"a sweep parks it", refund, []move{lapsed, look, reaches(toReleased, reconcile.ErrChanged, sweep)}},
		{"a call parks it", refund, []move{
			lapsed, look, reaches(toReleased, reconcile.ErrChanged, fails(mustNotRun, idem.ErrOutcomeUnknown)),
		}},
		{"its attempt renews the lease", refund, []move{
			lapsed, look, reaches(toReleased, reconcile.ErrChanged, renews(idem.DefaultLease)),
		}},
		// The reply to a replacing resolution is lost, and somebody else replaces it: the retry is no
		// leave to decide again.
		{"a retry replaces no later decision", refund, []move{
			lapsed, resolves(to(1)), look,
			func(r *rig) {
				r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
					_ = c.Do(ctx)
					require.NoError(r.t, r.Resolve(ctx, r.key.ID(), again(to(7)),
						reconcile.Change{Actor: "bob", Reason: "a webhook", IfWrite: r.record().Write}))
					return c.Lost()
				})
				require.ErrorIs(r.t, r.resolve(again(toReleased)), reconcile.ErrChanged)
			},
			refuses(again(toReleased), reconcile.ErrChanged), gets(mustNotRun, 7),
		}},
		// An answer is about the attempt that was asked about: a later one may have another outcome.
		{"an answer does not settle a later attempt", refund, []move{
			lapsed, asking(func(r *rig, n int) (reconcile.Answer, error) {
				if n > 1 {
					return stillUnknown, nil
				}
				r.play(resolves(toReleased), ends(errPlain), lapse)
				return notExecuted, nil // the first attempt was not
			}),
			sweeps(notice.SweepParked, notice.Probed), asked(2), is(idem.Unknown), // it looks once more
		}},
		// Not executed counts only once the parked attempt's lease is over.
		{"not executed waits for the lease", refund, []move{
			ends(errPlain), asks(notExecuted), sweeps(notice.SweepPostponed),
			func(r *rig) {
				parkedUntil = r.record().LeaseUntil.Add(idem.DefaultMargin)
				require.Equal(r.t, parkedUntil.Add(time.Millisecond), r.record().Due)
				r.until(r.record().Due)
			},
			sweeps(notice.Resolved), is(idem.Released),
		}},
		// The attempt runs on to its lease's end: what the provider says before that does not hold any more
		// when its answer arrives after it.
		{"an answer from before the lease's end releases nothing", refund, []move{
			ends(errPlain), asking(func(r *rig, n int) (reconcile.Answer, error) {
				if n == 1 {
					r.lapse() // the answer takes its time
				}
				return notExecuted, nil
			}),
			sweeps(notice.SweepPostponed), is(idem.Unknown), sweeps(notice.Resolved), asked(2), is(idem.Released),
		}},
	}
	for name, answer := range map[string]reconcile.Answer{
		"completed": reconcile.CompletedWith(1), "not executed": notExecuted, "still unknown": stillUnknown,
		"cannot be known": cannotBeKnown,
	} {
		stories = append(stories, story{"a late answer changes nothing: " + name, refund, []move{
			lapsed, asks(answer, resolves(to(7))), sweeps(notice.SweepParked), gets(mustNotRun, 7), escalated(0),
			changed(parked, resolved),
		}})
	}
	for name, tc := range map[string]struct {
		fault idemtest.Fault
		look  move
	}{
		"it lands": {idemtest.Pass, look}, "its reply is lost": {idemtest.LoseReply, look},
		"its reply is lost, and nothing was seen": {idemtest.LoseReply, times(0)},
		"its request is lost":                     {idemtest.LoseRequest, look},
	} {
		stories = append(stories, story{"a lapsed claim is resolved in one write: " + name, refund, []move{
			lapsed, tc.look, next(idemtest.Settle, tc.fault), resolves(toReleased), is(idem.Released), changed(resolved),
		}})
	}
	play(t, stories...)
}

func TestADecisionIsFoundInTheHistoryByItsID(t *testing.T) {
	r := newRig(t, refund)
	r.play(ends(errPlain), lapse)
	for _, id := range []string{"a b", "a#b", "a.b", "\u00e4", strings.Repeat("a", 65)} {
		by := alice
		by.DecisionID = id
		require.ErrorAs(r.t, r.Resolve(r.t.Context(), r.key.ID(), toCompleted, by), new(*idem.ConfigError), id)
	}
	named, other := alice, alice
	named.DecisionID, other.DecisionID = "form-1", "form-10"
	require.NoError(r.t, r.Resolve(r.t.Context(), r.key.ID(), toCompleted, named))
	r.play(resolves(again(toCompleted)))
	made := func(by reconcile.Change) (all []bool) {
		for _, a := range r.history(r.key) {
			all = append(all, by.Made(a))
		}
		return all
	}
	require.Equal(r.t, []bool{true, false}, made(named))
	require.Equal(r.t, []bool{false, false}, made(other), "an ID that begins like it")
	require.Equal(r.t, []bool{false, false}, made(alice), "who has no ID finds none")
}

// A resolution that is refused changes nothing, its preview says why, and the next call goes on as before. The
// same look still counts.
func TestAResolutionThatIsRefusedChangesNothing(t *testing.T) {
	mistake := new(*idem.ConfigError)
	both := func(other string) map[string]reconcile.Answer {
		return map[string]reconcile.Answer{"charge": tookEffect, other: tookEffect}
	}
	steps := func(all map[string]reconcile.Answer) reconcile.Resolution {
		return reconcile.Resolution{To: idem.Released, Steps: all}
	}
	encoded := func(e protocol.Encoded) reconcile.Resolution { return charged(reconcile.CompletedWithEncoded(e)) }
	result := func(body, codec string, check func([]byte) error) reconcile.Resolution {
		return reconcile.Resolution{To: idem.Completed,
			Result: &protocol.Encoded{Body: []byte(body), Codec: codec, Check: check}}
	}
	good, bad := func([]byte) error { return nil }, func([]byte) error { return errPlain }
	one := to(1).Result
	for name, tc := range map[string]struct {
		res  reconcile.Resolution
		want any
		text string // of the refusal, and of the preview's; empty if the store refuses it
	}{
		"nothing":                {reconcile.Resolution{}, mistake, `To is ""`},
		"to unknown":             {reconcile.Resolution{To: idem.Unknown}, mistake, `To is "unknown"`},
		"to in progress":         {reconcile.Resolution{To: idem.InProgress}, mistake, `To is "in_progress"`},
		"a failure that is none": {reconcile.Resolution{To: idem.Failed}, mistake, "Failure is nil"},
		"a failure of no attempt": {reconcile.Resolution{To: idem.Failed,
			Failure: &idem.Failure{Code: protocol.CodeNotStarted}}, mistake, "no attempt was made"},
		"a release with a result": {reconcile.Resolution{To: idem.Released, Result: one}, mistake, "Result is given"},
		"a failure with a result": {
			reconcile.Resolution{To: idem.Failed, Failure: &declined, Result: one}, mistake, "Result is given"},
		"a result that is no JSON": {result("receipt 7", "", nil), mistake, "not JSON"},
		"a result that is empty":   {result("", "", nil), mistake, "not JSON"},
		"a result that is checked": {result("1", "", bad), mistake, "could not read Result"},
		"a release undone by hand": {
			reconcile.Resolution{To: idem.Released, CompensatedManually: true}, mistake, "goes on with its steps"},
		"a success undone by hand": {
			reconcile.Resolution{To: idem.Completed, CompensatedManually: true}, mistake, "is not being undone"},
		"a success with steps":     {reconcile.Resolution{To: idem.Completed, Steps: both("x")}, mistake, "Steps is given"},
		"a step that there is not": {steps(both("x")), mistake, `Steps has "x"`},
		"an empty list of steps":   {steps(map[string]reconcile.Answer{}), mistake, "Steps is empty"},
		"a step that is done too":  {steps(both("reserve")), mistake, `Steps has "reserve", whose outcome is recorded`},
		"another step":             {settled("reserve", tookEffect), mistake, `Steps has "reserve"`},
		"a step's result, no JSON": {encoded(protocol.Encoded{Body: []byte("seven")}), mistake, "not JSON"},
		"a step's result, of HTTP": {encoded(protocol.Encoded{Codec: "http", Body: []byte("7")}), mistake, "is http"},
		"a step's result, a func":  {charged(reconcile.CompletedWith(func() {})), mistake, "Steps"},
		"a step's outcome is none": {charged(stillUnknown), mistake, "no outcome"},
		"steps of a step":          {charged(reconcile.ContinueWith(both("x"))), mistake, "steps have no steps"},
		"a step's reference":       {charged(tookEffect.WithRef("ch_1")), mistake, "reference"},
		"the steps are not named":  {toReleased, reconcile.ErrStepsUnnamed, "may have taken effect"},
		"the steps are not undone": {toFailed, reconcile.ErrNotUndone, "have not been undone"},
		"about another attempt": {
			reconcile.Resolution{To: idem.Released, Attempt: 7}, reconcile.ErrNotUnknown, "about attempt 7"},
		"encoded for other calls": {result("", "http", good), mistake, "Result is http"},
		"too large for the store": {to(7), new(*protocol.TooLargeError), ""},
	} {
		tooLarge := func(context.Context, *idemtest.Call) error { return &protocol.TooLargeError{Size: 4, Limit: 3} }
		play(t, story{name, order, []move{
			interrupted,
			func(r *rig) {
				d := r.Preview(r.record(), tc.res)
				require.Contains(r.t, d.Refused, tc.text)
				require.Equal(r.t, tc.text == "", d.Refused == "")
				require.NotContains(r.t, d.Refused, "reconcile: ", "it is for operators")
				require.Equal(r.t, tc.text == "", d.Then != "")
			},
			look, always(tooLarge, idemtest.Settle), refuses(tc.res, tc.want), refuses(tc.res, tc.text), heal,
			resolves(charged(notExecuted)), gets(shop, 7), did(orderEffects{charged: 1, shipped: 1}),
		}})
	}
	require.Equal(t, "there is no record", newRig(t, refund).Preview(nil, toReleased).Refused)
}

// Who is refused reads what to do.
func TestRefusalsSayWhatToDo(t *testing.T) {
	play(t, []story{
		{"of an open question", refund, []move{
			ends(errPlain), refuses(toReleased, reconcile.ErrTooEarly),
			func(r *rig) {
				over := r.record().LeaseUntil.Add(idem.DefaultMargin).Format(time.RFC3339Nano)
				r.play(refuses(toReleased, "which is over at "+over))
				err := r.Forget(r.t.Context(), r.key.ID(), alice)
				require.ErrorIs(r.t, err, reconcile.ErrOpen)
				require.ErrorContains(r.t, err, "this one is unknown: resolve it first")
			},
			resolves(to(7)), refuses(to(8), reconcile.ErrNotUnknown),
			refuses(to(8), "resolved as completed before: set Resolution.Replace"),
			func(r *rig) {
				require.ErrorContains(r.t, r.Resolve(r.t.Context(), r.key.ID(), again(toFailed), alice),
					"Replace is set, and Change.IfWrite is empty")
			},
			resolves(again(toFailed)),
		}},
		{"of a record that has ended", refund, []move{
			ends(nil), refuses(to(1), reconcile.ErrNotUnknown),
			func(r *rig) {
				require.ErrorIs(r.t, r.Resolve(r.t.Context(), "absent", to(1), alice), reconcile.ErrNotFound)
				r.looked = "another"
				require.ErrorIs(r.t, r.Forget(r.t.Context(), r.key.ID(), r.by()), reconcile.ErrChanged)
				for _, unsigned := range []reconcile.Change{{}, {Actor: "alice"}, {Reason: "erasure"}} {
					require.ErrorAs(r.t, r.Forget(r.t.Context(), r.key.ID(), unsigned), new(*idem.ConfigError))
				}
				r.Faults.Reset()
				require.Error(r.t, r.Resolve(r.t.Context(), r.key.ID(), reconcile.Resolution{}, alice))
				require.Empty(r.t, r.Faults.Calls(), "a mistake is refused before the store is asked")
			},
			is(idem.Completed), func(r *rig) { require.NoError(r.t, r.Forget(r.t.Context(), r.key.ID(), r.seen())) },
		}},
		{"of a store that cannot be read", refund, []move{
			ends(errPlain), next(idemtest.Get, idemtest.Unreadable, idemtest.Refuse),
			func(r *rig) {
				require.ErrorIs(r.t, r.resolve(to(1)), idem.ErrRecordUnreadable)
				require.ErrorIs(r.t, r.resolve(to(1)), idem.ErrStoreUnavailable)
			},
		}},
	}...)
}

// Nothing is recorded that is not so: what would change nothing, and what comes too late, is refused.
func TestAResolutionThatComesTooLateOrChangesNothingIsRefused(t *testing.T) {
	took, absent := charged(tookEffect), charged(notExecuted)
	for name, tc := range map[string]struct {
		first, second reconcile.Resolution
		between       move
		want          string
	}{
		"the same word":               {took, took, nil, "released before, and nothing would change"},
		"no step is left":             {absent, absent, nil, `Steps has "charge", which the earlier resolution has removed`},
		"it was released before":      {absent, toReleased, nil, "released before, and nothing would change"},
		"an attempt runs":             {took, absent, killed, "is in_progress by its attempt 2"},
		"an attempt has used it":      {took, absent, fails(returns(0, errPlain), nil), "is released by its attempt 2"},
		"an attempt has died in ship": {took, absent, killedIn("ship"), `Steps has "charge", whose outcome is recorded`},
		"an attempt has completed":    {took, absent, gets(shop, 7), "is completed by its attempt 2"},
	} {
		moves := []move{interrupted, resolves(tc.first), look}
		if tc.between != nil {
			moves = append(moves, tc.between, refuses(again(tc.second), reconcile.ErrChanged))
		}
		moves = append(moves, look, refuses(again(tc.second), tc.want), changed(resolved))
		play(t, story{name, order, moves})
	}
}

// The reference of a decision that is replaced is removed with it, and the attempt's own stays.
func TestTheReferenceOfADecisionGoesWithIt(t *testing.T) {
	ref := func(want string) move { return func(r *rig) { require.Equal(r.t, want, r.record().Ref) } }
	for name, tc := range map[string]struct{ attempts, wrong, left string }{
		"the decision's":             {"", "re_wrong", ""},
		"the decision's, over one":   {"re_1", "re_wrong", ""},
		"the attempt's":              {"re_1", "", "re_1"},
		"the attempt's, said again":  {"re_1", "re_1", ""},
		"there was none, nor is one": {"", "", ""},
	} {
		for extended, extend := range map[bool]move{false: times(0), true: extends} {
			play(t, story{fmt.Sprintf("%s, extended %v", name, extended), refund, []move{
				fails(func(r *rig) handler {
					return func(ctx context.Context, _ int) (int, error) {
						if tc.attempts != "" {
							require.NoError(r.t, idem.SetReference(ctx, tc.attempts))
						}
						return 0, errPlain
					}
				}, errPlain),
				lapse, resolves(reconcile.Resolution{To: idem.Completed, Ref: tc.wrong}), extend,
				resolves(again(toReleased)), ref(tc.left),
			}})
		}
	}
	wrong := charged(tookEffect)
	wrong.Ref = "pay_of_another_customer"
	play(t, story{"a release without one takes away that of the release before", order, []move{
		interrupted, resolves(wrong), ref(wrong.Ref), resolves(again(charged(tookEffect))), ref(""),
	}})
}
