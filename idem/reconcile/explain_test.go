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

// standings leave a record each, in all the ways that one can stand.
var standings = []story{
	{"absent", refund, nil},
	{"running", refund, []move{killed}},
	{"running and repeatable", webhook, []move{killed}},
	{"running in a step", order, []move{func(r *rig) { r.crash(r.key, shopping(new(orderEffects), r.Crash)) }}},
	{"accepted", refund, []move{accepted}},
	{"accepted and running", refund, []move{accepted, workerKilled}},
	{"accepted and lapsed", refund, []move{accepted, workerKilled, lapse}},
	{"lapsed", refund, []move{lapsed}},
	{"lapsed and repeatable", webhook, []move{lapsed}},
	{"completed", refund, []move{ends(nil)}},
	{"completed without result", refund, []move{ends(errPlain), resolves(toCompleted)}},
	{"failed", refund, []move{ends(idem.Permanent(errPlain))}},
	{"released", refund, []move{ends(idem.NotExecuted(errPlain))}},
	{"released with a step", webhook, []move{fails(stepThen(errPlain), nil)}},
	{"unknown, may still run", refund, []move{ends(errPlain)}},
	{"unknown", refund, []move{ends(errPlain), lapse}},
	{"unknown with a step to undo", refund, []move{fails(stepThen(errPlain), nil), lapse}},
	{"unknown while it is undone", refund, []move{fails(func(r *rig) handler {
		return func(ctx context.Context, _ int) (int, error) {
			r.done(ctx, "book", func() error { return idem.Permanent(errPlain) })
			r.done(ctx, "charge", nothing)
			return 0, idem.Permanent(errPlain)
		}
	}, nil), lapse}},
	{"unknown once it is undone", refund, []move{fails(func(r *rig) handler {
		return func(ctx context.Context, _ int) (int, error) {
			r.done(ctx, "book", nothing)
			require.NoError(r.t, idem.Abort(ctx, errPlain))
			return 0, errors.New("and then lost its way")
		}
	}, nil), lapse}},
	{"unknown in a step", order, []move{interrupted}},
	{"released by a person", order, []move{interrupted, resolves(charged(notExecuted))}},
	{"released with a word about a step", order, []move{interrupted, resolves(charged(tookEffect))}},
	{"expired", refund, []move{ends(nil), wait(25 * time.Hour)}},
}

// accepted leaves work that waits for its worker.
func accepted(r *rig) {
	_, err := later.Accept[int](r.t.Context(), r.Engine, r.key, 1, nil)
	require.NoError(r.t, err)
}

// workerKilled leaves the claim of a worker whose process died.
func workerKilled(r *rig) {
	defer r.Restart()
	ds := idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (idem.Result[int], error) {
		return later.Work(ctx, e, refund, r.key.ID(), func(context.Context, int) (int, error) { r.Crash(); return 0, nil })
	})
	require.ErrorIs(r.t, ds[0].Err, idemtest.ErrCrashed)
	require.Equal(r.t, idem.InProgress, r.record().State)
}

// standing is a rig with the record that the story leaves.
func standing(t *testing.T, s story) *rig {
	r := newRig(t, s.op)
	r.play(s.moves...)
	return r
}

// got says what a call gets in the words of an explanation.
func (r *rig) got(input int) string {
	r.t.Helper()
	ran := false
	out, err := idem.Do(r.t.Context(), r.Engine, r.key, input, func(context.Context, int) (int, error) {
		ran = true
		return 8, nil
	})
	switch {
	case ran: // what is being undone does not end well
		return fmt.Sprintf("The handler runs, attempt %d", r.record().Attempt)
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

// What an explanation says of the next call, and of a time, is what happens.
func TestWhatIsExplainedIsWhatHappens(t *testing.T) {
	waits := 0
	for _, s := range standings {
		t.Run(s.name, func(t *testing.T) {
			r := standing(t, s)
			e := r.explain(r.key)
			r.speaks(e)
			require.Equal(t, s.name == "unknown while it is undone", strings.Contains(e.Summary, "is being undone"))
			require.Equal(t, s.name == "unknown once it is undone", strings.Contains(e.Summary, "has been undone"))
			require.Truef(t, strings.HasPrefix(e.SameInput, r.got(1)), "%s", e.SameInput)
			require.Truef(t, strings.HasPrefix(e.OtherInput, standing(t, s).got(2)), "%s", e.OtherInput)
			for i, d := range e.Decisions {
				r := standing(t, s) // a little later than the first one: its times are its own
				refused := r.explain(r.key).Decisions[i].Refused
				err := r.decide(d)
				require.Equalf(t, d.Refused == "", err == nil, "%+v: %v", d, err)
				if err == nil {
					require.Truef(t, strings.HasPrefix(d.Then, r.got(1)), "%s", d.Then)
				}
				if until, ok := strings.CutPrefix(refused, "not before "); ok {
					until, _, _ = strings.Cut(until, ",")
					at, err := time.Parse(time.RFC3339, until)
					require.NoError(t, err)
					r.until(at.Add(-time.Second))
					require.NotEmpty(t, r.explain(r.key).Decisions[i].Refused)
					r.until(at.Add(time.Second))
					require.Empty(t, r.explain(r.key).Decisions[i].Refused)
					waits++
				}
			}
			for i := range e.Changes {
				r := standing(t, s)
				change := r.explain(r.key).Changes[i]
				if _, then, said := strings.Cut(change.What, "Then a call gets: "); said {
					r.until(change.At.Add(time.Millisecond))
					require.Truef(t, strings.HasPrefix(then, r.got(1)), "%s", then)
				}
			}
		})
	}
	require.Greater(t, waits, 8)
}

// speaks checks what an explanation says that callers get: what was asked for over HTTP gets a status; what a
// message asked for is acknowledged, or delivered again.
func (r *rig) speaks(e reconcile.Explanation) {
	texts := func(e reconcile.Explanation) string {
		all := []string{e.SameInput, e.OtherInput}
		for _, d := range e.Decisions {
			all = append(all, d.Then)
		}
		for _, c := range e.Changes {
			all = append(all, c.What)
		}
		return strings.Join(all, " ")
	}
	require.NotContains(r.t, texts(e), "HTTP")
	response, err := idemhttp.Encode(&idemhttp.Response{Status: 201})
	require.NoError(r.t, err)
	if rec := r.record(); rec != nil {
		rec.Codec = response.Codec
		require.NotContains(r.t, texts(r.Explain(rec)), "message")
	}
}

// decide does what an explanation offers.
func (r *rig) decide(d reconcile.Decision) error {
	rec := r.record()
	switch {
	case d.Change == protocol.ChangeForgotten && rec == nil:
		return errPlain // forgetting nothing is no mistake, and nothing to offer
	case d.Change == protocol.ChangeForgotten:
		return r.Forget(r.t.Context(), r.key.ID(), alice)
	case d.Change == protocol.ChangeExtended:
		until := r.Clock.Now().Add(100 * 24 * time.Hour)
		err := r.Extend(r.t.Context(), r.key.ID(), until, alice)
		if err == nil {
			require.WithinDuration(r.t, until, r.record().ExpiresAt, time.Second)
		}
		return err
	}
	res := map[idem.State]reconcile.Resolution{
		idem.Completed: to(7), idem.Failed: toFailed, idem.Released: toReleased,
	}[d.To]
	res.Replace, res.CompensatedManually = d.Again, len(d.Undo) > 0
	for _, name := range d.Steps {
		res.Steps = map[string]reconcile.Answer{name: notExecuted}
	}
	if rec == nil {
		return r.Resolve(r.t.Context(), r.key.ID(), res, alice)
	}
	return r.Resolve(r.t.Context(), r.key.ID(), res, r.seen())
}

func TestAnExplanationOfAnAbandonedRefund(t *testing.T) {
	r := newRig(t, refund)
	lapsed(r)
	e := r.explain(r.key)
	e.Changes = nil
	at := r.record().LeaseUntil.Format(time.RFC3339)
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
	r := newRig(t, order)
	interrupted(r)
	decisions := r.explain(r.key).Decisions
	require.Equal(t, "The recorded result. A message is acknowledged. The handler does not run. "+
		"Steps that are not recorded never run.", decisions[0].Then)
	require.Equal(t, "The handler runs, attempt 2, and skips the steps that are recorded: reserve. "+
		"It runs charge again. That is if each is recorded as not executed: a step that is recorded as done or failed "+
		"is skipped.", decisions[2].Then)
	require.Equal(t, []string{"charge"}, decisions[2].Steps)
}

// A decision that can repeat an effect says so, and what it replaces.
func TestADecisionThatCanRepeatAnEffectSaysSo(t *testing.T) {
	const twice = "If the provider has it already, it happens twice, such as a second charge or a second refund."
	var (
		over       = []move{lapsed, resolves(reconcile.Resolution{To: idem.Completed, Ref: "re_1"})}
		repeatable = func(rec *idem.Record) { rec.Repeat = idem.Repeatable }
		http       = func(rec *idem.Record) { rec.Codec = "http" }
	)
	for name, tc := range map[string]struct {
		op      idem.Operation
		moves   []move
		change  func(*idem.Record)
		res     reconcile.Resolution
		caution string
		repeats bool
		then    string
	}{
		"a release": {refund, []move{lapsed}, nil, toReleased, "The handler runs again. " + twice, true, ""},
		"a success": {refund, []move{lapsed}, nil, toCompleted, "", false, ""},
		"a failure": {refund, []move{lapsed}, nil, toFailed, "", false, ""},
		"a release over a success": {refund, over, nil, again(toReleased),
			"It was recorded as completed before, with the reference re_1. The handler runs again.", true,
			"no list has the record. A message that was acknowledged is not delivered again: have it sent again."},
		"a release over HTTP": {refund, over, http, again(toReleased), "The handler runs again.", true,
			"no list has the record. A client that got the earlier answer does not ask again: inform it."},
		"a failure over HTTP":             {refund, over, http, again(toFailed), "402", false, ""},
		"a release of what is repeatable": {refund, over, repeatable, again(toReleased), "", false, ""},
		"a step that took effect":         {order, []move{interrupted}, nil, charged(tookEffect), "", false, ""},
		"a step that had no effect": {order, []move{interrupted}, nil, charged(notExecuted),
			"charge runs again. " + twice, true, ""},
		"a step of what is not repeatable": {refund, []move{killedIn("mail")}, nil, settled("mail", tookEffect),
			"outside of its steps may happen twice", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := standing(t, story{op: tc.op, moves: tc.moves})
			rec := r.record()
			if tc.change != nil {
				tc.change(rec)
			}
			d := r.Preview(rec, tc.res)
			require.Empty(t, d.Refused)
			require.Contains(t, d.Caution, tc.caution)
			require.Equal(t, tc.caution == "", d.Caution == "")
			require.Equal(t, tc.repeats, d.Repeats)
			require.Contains(t, d.Then, tc.then)
		})
	}
	r := standing(t, story{op: refund, moves: over})
	forget := r.explain(r.key).Decisions[4]
	require.Contains(t, forget.Caution, twice, "of a removal")
	require.True(t, forget.Repeats)
}
