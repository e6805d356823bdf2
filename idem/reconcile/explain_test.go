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
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// stories leave a record each, in all the ways that one can stand.
var stories = []struct {
	name  string
	key   idem.Key
	leave func(r *rig, key idem.Key)
}{
	{"absent", refund.Key("acme", "r-1"), func(*rig, idem.Key) {}},
	{"running", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.killed(key) }},
	{"running and repeatable", webhook.Key("acme", "w-1"), func(r *rig, key idem.Key) { r.killed(key) }},
	{"running in a step", order.Key("acme", "o-1"), func(r *rig, key idem.Key) {
		r.crash(key, shopping(new(orderEffects), r.Crash))
	}},
	{"accepted", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.accept(key) }},
	{"accepted and running", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.accept(key); r.workerKilled(key) }},
	{"accepted and lapsed", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) {
		r.accept(key)
		r.workerKilled(key)
		r.lapse()
	}},
	{"lapsed", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.killed(key); r.lapse() }},
	{"lapsed and repeatable", webhook.Key("acme", "w-1"), func(r *rig, key idem.Key) { r.killed(key); r.lapse() }},
	{"completed", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.end(key, nil) }},
	{"completed without result", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) {
		r.end(key, errPlain)
		r.resolve(key, reconcile.Resolution{To: idem.Completed})
	}},
	{"failed", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.end(key, idem.Permanent(errPlain)) }},
	{"released", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.end(key, idem.NotExecuted(errPlain)) }},
	{"released with a step", webhook.Key("acme", "w-1"), func(r *rig, key idem.Key) { r.endWithStep(key, nil) }},
	{"unknown, may still run", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.end(key, errPlain) }},
	{"unknown", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.end(key, errPlain); r.lapse() }},
	{"unknown with a step to undo", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) {
		r.endWithStep(key, func(context.Context, int) error { return nil })
		r.lapse()
	}},
	{"unknown while it is undone", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) {
		r.fails(key, func(ctx context.Context, _ int) (int, error) {
			r.done(ctx, "book", func() error { return idem.Permanent(errPlain) })
			r.done(ctx, "charge", nothing)
			return 0, idem.Permanent(errPlain)
		}, nil)
		r.lapse()
	}},
	{"unknown once it is undone", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) {
		r.fails(key, func(ctx context.Context, _ int) (int, error) {
			r.done(ctx, "book", nothing)
			require.NoError(r.t, idem.Abort(ctx, errPlain))
			return 0, errors.New("and then lost its way")
		}, nil)
		r.lapse()
	}},
	{"unknown in a step", order.Key("acme", "o-1"), func(r *rig, key idem.Key) { r.crashCharging(key) }},
	{"released by a person", order.Key("acme", "o-1"), func(r *rig, key idem.Key) {
		r.crashCharging(key)
		r.resolve(key, charged(reconcile.NotExecuted()))
	}},
	{"released with a word about a step", order.Key("acme", "o-1"), func(r *rig, key idem.Key) {
		r.crashCharging(key)
		r.resolve(key, charged(reconcile.CompletedWith(7)))
	}},
	{"expired", refund.Key("acme", "r-1"),
		func(r *rig, key idem.Key) { r.end(key, nil); r.Clock.Advance(25 * time.Hour) }},
}

var alice = reconcile.Change{Actor: "alice", Reason: "the provider's console says so"}

// accept leaves work that waits for its worker.
func (r *rig) accept(key idem.Key) {
	r.t.Helper()
	_, err := later.Accept[int](r.t.Context(), r.Engine, key, 1, nil)
	require.NoError(r.t, err)
}

// workerKilled leaves the claim of a worker whose process died.
func (r *rig) workerKilled(key idem.Key) {
	r.t.Helper()
	defer r.Restart()
	ds := idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (idem.Result[int], error) {
		return later.Work(ctx, e, refund, key.ID(), func(context.Context, int) (int, error) { r.Crash(); return 0, nil })
	})
	require.ErrorIs(r.t, ds[0].Err, idemtest.ErrCrashed)
	require.Equal(r.t, idem.InProgress, r.Record(key).State)
}

// end is an attempt that ends with the error.
func (r *rig) end(key idem.Key, err error) {
	r.t.Helper()
	_, got := r.call(key, func(context.Context, int) (int, error) { return 7, err })
	require.Equal(r.t, err == nil, got == nil)
}

// endWithStep is an attempt that fails after a step.
func (r *rig) endWithStep(key idem.Key, undo func(context.Context, int) error) {
	r.t.Helper()
	r.fails(key, func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "book", func(context.Context) (int, error) { return 1, nil },
			&idem.StepConfig[int]{Compensate: undo})
		require.NoError(r.t, err)
		return 0, errPlain
	}, nil)
}

// got says what a call gets in the words of an explanation.
func (r *rig) got(key idem.Key, input int) string {
	r.t.Helper()
	ran := false
	out, err := idem.Do(r.t.Context(), r.Engine, key, input, func(context.Context, int) (int, error) {
		ran = true
		return 8, nil
	})
	switch {
	case ran: // what is being undone does not end well
		return fmt.Sprintf("The handler runs, attempt %d", r.Record(key).Attempt)
	case err == nil:
		require.Equal(r.t, 7, out)
		return "The recorded result"
	}
	for word, sentinel := range map[string]error{
		"An error: the outcome is unknown.": idem.ErrOutcomeUnknown, "An error: another attempt runs.": idem.ErrInFlight,
		"An error: the key was used with another input.":  idem.ErrKeyReused,
		"No outcome yet: the work is accepted for later.": idem.ErrAccepted,
		"An error: it took effect, and its result is not": idem.ErrOutcomeUnavailable,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	return "The recorded failure"
}

// What an explanation says of the next call is what it gets.
func TestWhatIsExplainedIsWhatHappens(t *testing.T) {
	waits := 0
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t)
			s.leave(r, s.key)
			e := r.explain(s.key)
			require.Equal(t, s.name == "unknown while it is undone", strings.Contains(e.Summary, "is being undone"))
			require.Equal(t, s.name == "unknown once it is undone", strings.Contains(e.Summary, "has been undone"))
			require.Truef(t, strings.HasPrefix(e.SameInput, r.got(s.key, 1)), "%s", e.SameInput)

			r = newRig(t)
			s.leave(r, s.key)
			require.Truef(t, strings.HasPrefix(e.OtherInput, r.got(s.key, 2)), "%s", e.OtherInput)

			for i, d := range e.Decisions {
				r := newRig(t)
				s.leave(r, s.key)
				err := r.decide(s.key, d)
				require.Equalf(t, d.Refused == "", err == nil, "%+v: %v", d, err)
				if err == nil {
					require.Truef(t, strings.HasPrefix(d.Then, r.got(s.key, 1)), "%s", d.Then)
				}
				if until, ok := strings.CutPrefix(d.Refused, "not before "); ok {
					until, _, _ = strings.Cut(until, ",")
					at, err := time.Parse(time.RFC3339, until)
					require.NoError(t, err)
					r.Clock.Advance(at.Add(-time.Second).Sub(r.Clock.Now()))
					require.NotEmpty(t, r.explain(s.key).Decisions[i].Refused)
					r.Clock.Advance(2 * time.Second)
					require.Empty(t, r.explain(s.key).Decisions[i].Refused)
					waits++
				}
			}
		})
	}
	require.Greater(t, waits, 8)
}

// What an explanation says of a time is so from then on.
func TestWhatIsExplainedOfTimeIsWhatHappens(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			for i := 0; ; i++ {
				r := newRig(t)
				s.leave(r, s.key)
				changes := r.explain(s.key).Changes
				if i == len(changes) {
					return
				}
				_, then, said := strings.Cut(changes[i].What, "Then a call gets: ")
				if !said {
					continue
				}
				r.Clock.Advance(changes[i].At.Sub(r.Clock.Now()) + time.Millisecond)
				require.Truef(t, strings.HasPrefix(then, r.got(s.key, 1)), "%s", then)
			}
		})
	}
}

func (r *rig) explain(key idem.Key) reconcile.Explanation {
	r.t.Helper()
	rec, err := r.Lookup(r.t.Context(), key.ID())
	require.NoError(r.t, err)
	return r.Explain(rec)
}

// decide does what an explanation offers.
func (r *rig) decide(key idem.Key, d reconcile.Decision) error {
	rec := r.Record(key)
	switch {
	case d.Change == protocol.ChangeForgotten && rec == nil:
		return errPlain // forgetting nothing is no mistake, and nothing to offer
	case d.Change == protocol.ChangeForgotten:
		return r.Forget(r.t.Context(), key.ID(), alice)
	case d.Change == protocol.ChangeExtended:
		until := r.Clock.Now().Add(100 * 24 * time.Hour)
		err := r.Extend(r.t.Context(), key.ID(), until, alice)
		if err == nil {
			require.WithinDuration(r.t, until, r.Record(key).ExpiresAt, time.Second)
		}
		return err
	}
	res := reconcile.Resolution{To: d.To, Replace: d.Again, CompensatedManually: len(d.Undo) > 0}
	switch d.To {
	case idem.Completed:
		result, err := reconcile.Encode(7)
		require.NoError(r.t, err)
		res.Result = &result
	case idem.Failed:
		res.Failure = &idem.Failure{Message: "declined"}
	case idem.Released:
		for _, name := range d.Steps {
			res.Steps = map[string]reconcile.Answer{name: reconcile.NotExecuted()}
		}
	}
	by := alice
	if rec != nil {
		by = r.seen(key)
	}
	return r.Resolve(r.t.Context(), key.ID(), res, by)
}

func TestAnExplanationOfAnAbandonedRefund(t *testing.T) {
	r, key := lapsed(t, refund)
	e := r.explain(key)
	e.Changes = nil
	at := r.Record(key).LeaseUntil.Format(time.RFC3339)
	require.Equal(t, reconcile.Explanation{
		State:   idem.InProgress,
		Summary: "Attempt 1 left no outcome: its lease was over at " + at + ". Its process has died, or can no longer write.",
		SameInput: "An error: the outcome is unknown. A message is delivered again. The record becomes unknown: " +
			"an attempt left no outcome and may have taken effect. The handler does not run.",
		OtherInput: "An error: the key was used with another input. A message is delivered again. The handler does not run.",
		Decisions: []reconcile.Decision{
			{Change: protocol.ChangeResolved, To: idem.Completed,
				Then: "The recorded result. A message is acknowledged. The handler does not run."},
			{Change: protocol.ChangeResolved, To: idem.Failed,
				Then: "The recorded failure. A message is acknowledged. The handler does not run."},
			{
				Change: protocol.ChangeResolved, To: idem.Released,
				Then: "The handler runs, attempt 2. Until that call nothing runs, and no list has the record.",
				Caution: "The handler runs again. If the provider has it already, it happens twice, such as a second charge " +
					"or a second refund. Release it only if the provider has confirmed that it has no such operation, and that " +
					"none can follow.",
				Repeats: true,
			},
			{Change: protocol.ChangeExtended, To: idem.InProgress,
				Refused: "only a record that has ended can be kept for longer, and it is in_progress"},
			{Change: protocol.ChangeForgotten, Refused: "only a record that has ended can be forgotten, and it is in_progress"},
		},
	}, e)
}

func TestAnExplanationOfAnInterruptedStep(t *testing.T) {
	r, key := interrupted(t)
	decisions := r.explain(key).Decisions
	require.Equal(t, "The recorded result. A message is acknowledged. The handler does not run. "+
		"Steps that are not recorded never run.", decisions[0].Then)
	require.Equal(t, "The handler runs, attempt 2, and skips the steps that are recorded: reserve. "+
		"It runs charge again. That is if each is recorded as not executed: a step that is recorded as done or failed "+
		"is skipped.", decisions[2].Then)
	require.Equal(t, []string{"charge"}, decisions[2].Steps)
}

// A compensation needs the result of its step. Without it the next attempt is parked before it goes
// on, and a person says the result then, undoes all by hand, or decides that it took effect.
func TestAStepWithoutAResultThatHasACompensation(t *testing.T) {
	const reserved = "The handler runs, attempt 2, and skips the steps that are recorded: reserve"
	key, declined := order.Key("acme", "o-1"),
		reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}, CompensatedManually: true}
	for name, last := range map[string]reconcile.Resolution{
		"it is undone by hand": declined, "it took effect": {To: idem.Completed},
		"its result is said":   charged(reconcile.CompletedWith(7)),
		"it is said once more": charged(reconcile.CompletedWithoutResult()),
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRig(t), new(orderEffects)
			undo := &idem.StepConfig[int]{Semantics: idem.AtMostOnce,
				Compensate: func(context.Context, int) error { s.returned++; return nil }}
			pay := func(died func()) func(context.Context, int) (int, error) {
				return func(ctx context.Context, _ int) (int, error) {
					if _, err := idem.Step(ctx, "reserve",
						func(context.Context) (int, error) { s.reserved++; return 1, nil }, undo); err != nil {
						return 0, err
					}
					out, err := idem.Step(ctx, "charge",
						func(context.Context) (int, error) { s.charged++; died(); return 7, nil }, undo)
					return out, idem.PermanentStep(err)
				}
			}
			r.crash(key, pay(r.Crash))
			r.lapse()
			d := r.Preview(r.Record(key), charged(reconcile.CompletedWithoutResult()))
			require.Equal(t, reserved+
				". Unless these return nothing, the operation is parked again as soon as it comes to them, "+
				"since compensations need their results, which are to be said then: charge.", d.Then)
			r.resolve(key, charged(reconcile.CompletedWithoutResult()))

			after := orderEffects{reserved: 1, charged: 1}
			parked := func() {
				r.fails(key, pay(func() { t.Error("again") }), new(*idem.StepUnavailableError))
				require.Equal(t, idem.Unknown, r.Record(key).State)
				require.Equal(t, after, *s)
				r.lapse()
				require.Contains(t, r.explain(key).Summary, "cannot go on with what was recorded of step charge")
			}
			parked()
			failed := declined
			failed.CompensatedManually = false
			r.owes(r.Resolve(t.Context(), key.ID(), failed, alice), unpaid("charge", "reserve"))
			r.resolve(key, last)
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
	for refused, res := range map[string]reconcile.Resolution{
		`Steps has "sip"`:        {To: idem.Released, Steps: map[string]reconcile.Answer{"sip": reconcile.NotExecuted()}},
		"Steps is empty":         {To: idem.Released, Steps: map[string]reconcile.Answer{}},
		"Failure is nil":         {To: idem.Failed},
		"have not been undone":   {To: idem.Failed, Failure: &idem.Failure{Message: "declined"}},
		"resolution is about at": {To: idem.Released, Attempt: 2},
	} {
		r, key := interrupted(t)
		d := r.Preview(r.Record(key), res)
		require.Contains(t, d.Refused, refused)
		require.NotContains(t, d.Refused, "reconcile: ", "it is for people")
		require.Empty(t, d.Then)
		require.ErrorContains(t, r.Resolve(t.Context(), key.ID(), res, alice), refused)
	}
	require.Equal(t, "there is no record", newRig(t).Preview(nil, reconcile.Resolution{To: idem.Released}).Refused)
}

// A decision that can repeat an effect says so, and what it replaces.
func TestADecisionThatCanRepeatAnEffectSaysSo(t *testing.T) {
	var change func(*idem.Record)
	preview := func(r *rig, key idem.Key, res reconcile.Resolution) (caution string, repeats bool) {
		rec := r.Record(key)
		if change != nil {
			change(rec)
		}
		d := r.Preview(rec, res)
		require.Empty(t, d.Refused)
		return d.Caution, d.Repeats
	}
	risky := func(r *rig, key idem.Key, res reconcile.Resolution, text string) {
		caution, repeats := preview(r, key, res)
		require.Contains(t, caution, text)
		require.True(t, repeats)
	}
	safe := func(r *rig, key idem.Key, res reconcile.Resolution) {
		caution, repeats := preview(r, key, res)
		require.Empty(t, caution)
		require.False(t, repeats)
	}
	const twice = "If the provider has it already, it happens twice, such as a second charge or a second refund."
	r, key := lapsed(t, refund)
	risky(r, key, reconcile.Resolution{To: idem.Released}, "The handler runs again. "+twice)
	safe(r, key, reconcile.Resolution{To: idem.Completed})
	safe(r, key, reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}})
	r.resolve(key, reconcile.Resolution{To: idem.Completed, Ref: "re_1"})
	risky(r, key, reconcile.Resolution{To: idem.Released, Replace: true},
		"It was recorded as completed before, with the reference re_1. The handler runs again.")
	released := again(reconcile.Resolution{To: idem.Released})
	require.Contains(t, r.Preview(r.Record(key), released).Then,
		"no list has the record. A message that was acknowledged is not delivered again: have it sent again.")
	asked := r.Record(key)
	asked.Codec = "http"
	require.Contains(t, r.Preview(asked, released).Then,
		"no list has the record. A client that got the earlier answer does not ask again: inform it.")
	forget := r.explain(key).Decisions[4]
	require.Contains(t, forget.Caution, twice, "of a removal")
	require.True(t, forget.Repeats)

	died := order.Key("acme", "o-1")
	r.crashCharging(died)
	risky(r, died, charged(reconcile.NotExecuted()), "charge runs again. "+twice)
	safe(r, died, charged(reconcile.CompletedWith(7)))

	change = func(rec *idem.Record) { rec.Repeat = idem.Repeatable }
	safe(r, key, reconcile.Resolution{To: idem.Released, Replace: true})
	change = func(rec *idem.Record) { rec.Codec = "http" }
	failed := reconcile.Resolution{To: idem.Failed, Replace: true, Failure: &idem.Failure{Message: "declined"}}
	caution, repeats := preview(r, key, failed)
	require.Contains(t, caution, "402")
	require.False(t, repeats)
}

// What was asked for over HTTP gets a status; what a message asked for is acknowledged, or delivered again.
func TestAnExplanationSpeaksOfWhatTheCallerGets(t *testing.T) {
	response, err := idemhttp.Encode(&idemhttp.Response{Status: 201})
	require.NoError(t, err)
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t)
			s.leave(r, s.key)
			rec := r.Record(s.key)
			if rec == nil {
				return
			}
			texts := func() (all []string) {
				e := r.Explain(rec)
				all = []string{e.SameInput, e.OtherInput}
				for _, d := range e.Decisions {
					all = append(all, d.Then)
				}
				for _, c := range e.Changes {
					all = append(all, c.What)
				}
				return all
			}
			for _, text := range texts() {
				require.NotContains(t, text, "HTTP")
			}
			rec.Codec = response.Codec
			for _, text := range texts() {
				require.NotContains(t, text, "message")
			}
		})
	}
}
