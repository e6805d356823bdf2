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
	{"lapsed", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.killed(key); r.lapse() }},
	{"lapsed and repeatable", webhook.Key("acme", "w-1"), func(r *rig, key idem.Key) { r.killed(key); r.lapse() }},
	{"completed", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.end(key, nil) }},
	{"completed without result", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) {
		r.end(key, errPlain)
		require.NoError(r.t, r.reconciler().Resolve(r.t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed}, alice))
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
		_, err := r.call(key, func(ctx context.Context, _ int) (int, error) {
			for _, name := range []string{"book", "charge"} {
				undo := func(context.Context, int) error { return nil }
				if name == "book" {
					undo = func(context.Context, int) error { return idem.Permanent(errPlain) }
				}
				_, err := idem.Step(ctx, name, func(context.Context) (int, error) { return 1, nil }, &idem.StepConfig[int]{Compensate: undo})
				require.NoError(r.t, err)
			}
			return 0, idem.Permanent(errPlain)
		})
		require.Error(r.t, err)
		r.lapse()
	}},
	{"unknown once it is undone", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) {
		_, err := r.call(key, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.Step(ctx, "book", func(context.Context) (int, error) { return 1, nil },
				&idem.StepConfig[int]{Compensate: func(context.Context, int) error { return nil }})
			require.NoError(r.t, err)
			require.NoError(r.t, idem.Abort(ctx, errPlain))
			return 0, errors.New("and then lost its way")
		})
		require.Error(r.t, err)
		r.lapse()
	}},
	{"unknown in a step", order.Key("acme", "o-1"), func(r *rig, key idem.Key) { r.diedCharging(key) }},
	{"released by a person", order.Key("acme", "o-1"), func(r *rig, key idem.Key) {
		r.diedCharging(key)
		require.NoError(r.t, r.reconciler().Resolve(r.t.Context(), key.ID(), charged(reconcile.NotExecuted()), alice))
	}},
	{"released with a word about a step", order.Key("acme", "o-1"), func(r *rig, key idem.Key) {
		r.diedCharging(key)
		require.NoError(r.t, r.reconciler().Resolve(r.t.Context(), key.ID(), charged(reconcile.CompletedWith(7)), alice))
	}},
	{"expired", refund.Key("acme", "r-1"), func(r *rig, key idem.Key) { r.end(key, nil); r.Clock.Advance(25 * time.Hour) }},
}

var alice = reconcile.Change{Actor: "alice", Reason: "the provider's console says so"}

// end is an attempt that ends with the error.
func (r *rig) end(key idem.Key, err error) {
	r.t.Helper()
	_, got := r.call(key, func(context.Context, int) (int, error) { return 7, err })
	require.Equal(r.t, err == nil, got == nil)
}

// endWithStep is an attempt that fails after a step.
func (r *rig) endWithStep(key idem.Key, undo func(context.Context, int) error) {
	r.t.Helper()
	_, err := r.call(key, func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "book", func(context.Context) (int, error) { return 1, nil }, &idem.StepConfig[int]{Compensate: undo})
		require.NoError(r.t, err)
		return 0, errPlain
	})
	require.Error(r.t, err)
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
		"HTTP 409 outcome_unknown": idem.ErrOutcomeUnknown, "HTTP 409 idempotency_key_in_progress": idem.ErrInFlight,
		"HTTP 422 idempotency_key_reused": idem.ErrKeyReused, "HTTP 409 outcome_unavailable": idem.ErrOutcomeUnavailable,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	return "The recorded failure"
}

// What an explanation says of the next call is what it gets.
func TestWhatIsExplainedIsWhatHappens(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t)
			s.leave(r, s.key)
			e := r.explain(s.key)
			require.Truef(t, strings.HasPrefix(e.SameInput, r.got(s.key, 1)), "%s", e.SameInput)

			r = newRig(t)
			s.leave(r, s.key)
			require.Truef(t, strings.HasPrefix(e.OtherInput, r.got(s.key, 2)), "%s", e.OtherInput)

			for _, d := range e.Decisions {
				r := newRig(t)
				s.leave(r, s.key)
				err := r.decide(s.key, d)
				require.Equalf(t, d.Refused == "", err == nil, "%+v: %v", d, err)
				if err == nil {
					require.Truef(t, strings.HasPrefix(d.Then, r.got(s.key, 1)), "%s", d.Then)
				}
			}
		})
	}
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
	rc := r.reconciler()
	rec, err := rc.Lookup(r.t.Context(), key.ID())
	require.NoError(r.t, err)
	return rc.Explain(rec)
}

// decide does what an explanation offers.
func (r *rig) decide(key idem.Key, d reconcile.Decision) error {
	rc, rec := r.reconciler(), r.Record(key)
	switch {
	case d.Change == protocol.ChangeForgotten && rec == nil:
		return errPlain // forgetting nothing is no mistake, and nothing to offer
	case d.Change == protocol.ChangeForgotten:
		return rc.Forget(r.t.Context(), key.ID(), alice)
	case d.Change == protocol.ChangeExtended:
		until := r.Clock.Now().Add(100 * 24 * time.Hour)
		err := rc.Extend(r.t.Context(), key.ID(), until, alice)
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
	return rc.Resolve(r.t.Context(), key.ID(), res, by)
}

func TestAnExplanationOfAnAbandonedRefund(t *testing.T) {
	r := newRig(t)
	key := refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	e := r.explain(key)
	e.Changes = nil
	at := r.Record(key).LeaseUntil.Format(time.RFC3339)
	require.Equal(t, reconcile.Explanation{
		State:   idem.InProgress,
		Summary: "Attempt 1 left no outcome: its lease was over at " + at + ". Its process has died, or can no longer write.",
		SameInput: "HTTP 409 outcome_unknown, and the record becomes unknown: " +
			"an attempt left no outcome and may have taken effect. The handler does not run.",
		OtherInput: "HTTP 422 idempotency_key_reused. The handler does not run.",
		Decisions: []reconcile.Decision{
			{Change: protocol.ChangeResolved, To: idem.Completed, Then: "The recorded result. The handler does not run."},
			{Change: protocol.ChangeResolved, To: idem.Failed, Then: "The recorded failure. The handler does not run."},
			{
				Change: protocol.ChangeResolved, To: idem.Released, Then: "The handler runs, attempt 2.",
				Caution: "The operation is not repeatable: if it took effect, it takes effect a second time. " +
					"Release it only if the provider has confirmed that it has no such operation, and that none can follow.",
			},
			{Change: protocol.ChangeExtended, To: idem.InProgress, Refused: "only a record that has ended can be kept for longer, and it is in_progress"},
			{Change: protocol.ChangeForgotten, Refused: "only a record that has ended can be forgotten, and it is in_progress"},
		},
	}, e)
}

func TestAnExplanationSaysThatItIsUndone(t *testing.T) {
	for _, s := range stories {
		r := newRig(t)
		s.leave(r, s.key)
		summary := r.explain(s.key).Summary
		require.Equal(t, s.name == "unknown while it is undone", strings.Contains(summary, "is being undone"), summary)
		require.Equal(t, s.name == "unknown once it is undone", strings.Contains(summary, "has been undone"), summary)
	}
}
