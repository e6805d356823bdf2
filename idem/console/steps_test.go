package console_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// order charges and ships, each at most once.
func (r *rig) order(key idem.Key, ran map[string]int, during func()) (int, error) {
	return idem.Do(r.t.Context(), r.Engine, key, 1, func(ctx context.Context, _ int) (int, error) {
		once := &idem.StepConfig[int]{Semantics: idem.AtMostOnce}
		charged, err := idem.Step(ctx, "charge",
			func(context.Context) (int, error) { ran["charge"]++; during(); return 7, nil }, once)
		if err != nil {
			return 0, err
		}
		_, err = idem.Step(ctx, "ship", func(context.Context) (int, error) { ran["ship"]++; return 1, nil }, once)
		return charged, err
	})
}

// diedCharging leaves an order whose process died in its charge.
func (r *rig) diedCharging(key idem.Key) string {
	r.t.Helper()
	idemtest.Deliver(r.Harness, 1, func(context.Context, *idem.Engine) (int, error) {
		return r.order(key, map[string]int{}, r.Crash)
	})
	r.Restart()
	r.lapse()
	return key.ID()
}

func TestAnOrderGoesOnAsTheFormSaysOfItsSteps(t *testing.T) {
	for name, tt := range map[string]struct {
		says  url.Values
		then  string
		story string
		ran   map[string]int
		out   int
		err   string
	}{
		"took effect": {
			url.Values{"step-0": {"took_effect"}, "step-0-result": {"7"}}, "skips the steps that are recorded: charge",
			"Step charge took effect.", map[string]int{"ship": 1}, 7, "<nil>",
		},
		"no effect": {
			url.Values{"step-0": {"not_executed"}}, "It runs charge again.",
			"Step charge had no effect.", map[string]int{"charge": 1, "ship": 1}, 7, "<nil>",
		},
		"something else before": {
			url.Values{"step-0": {"not_executed"}}, "It runs charge again.",
			"Step charge had no effect.", map[string]int{"charge": 1, "ship": 1}, 7, "<nil>",
		},
		"failed": {
			url.Values{"step-0": {"failed"}, "step-0-message": {"declined"}}, "gets the recorded failure of: charge",
			"Step charge failed.", map[string]int{}, 0, "declined",
		},
		"result not known": {
			url.Values{"step-0": {"took_effect_without_result"}},
			"an error for the steps that took effect with a result that is not known: charge",
			"Step charge took effect, with a result that is not known.", map[string]int{}, 0, "result",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, console.Options{})
			key := idem.Operation{Name: "order"}.Key("acme", "o-1")
			id := r.diedCharging(key)
			if name == "something else before" { // it is replaced as long as no call has used it
				r.decides(r.form(id, "released", url.Values{"step-0": {"took_effect"}, "step-0-result": {"8"}}), "")
			}
			before := r.changes(id)
			form := r.form(id, "released", tt.says)

			look := maps.Clone(form)
			look.Set("look", "1")
			look.Del("why")
			page := r.posts(look, http.StatusOK, "Nothing was changed yet.")
			require.Contains(t, html.UnescapeString(page.text), tt.then)
			require.Equal(t, before, r.changes(id))

			r.decides(form, tt.story)
			other := maps.Clone(form)
			other.Set("step-0", "another")
			r.posts(other, http.StatusConflict, "<h1>The record has changed</h1>")

			ran := map[string]int{}
			out, err := r.order(key, ran, func() {})
			require.Equal(t, tt.ran, ran)
			require.Equal(t, tt.out, out)
			require.Contains(t, fmt.Sprint(err), tt.err)
		})
	}
}

func TestWhatHasFailedAndWasUndoneIsCompletedOnlyWithAWord(t *testing.T) {
	r := newRig(t, console.Options{})
	key := refund.Key("acme", "r-1")
	id := key.ID()
	r.crash(key, func(ctx context.Context, _ int) (int, error) {
		r.done(ctx, "charge")
		require.NoError(t, idem.Abort(ctx, errors.New("sold out")))
		r.Crash()
		return 0, nil
	})
	r.lapse()
	page := r.get(act(id, "completed"))
	require.Contains(t, page.text, "The operation has failed")
	require.NotContains(t, page.text, "the operation took effect")

	form := r.form(id, "completed", url.Values{"known": {"yes"}, "result": {"402"}})
	r.posts(form, http.StatusUnprocessableEntity, "The steps have not been undone")
	require.Zero(t, r.changes(id))

	form.Set("undone", "1")
	r.decides(form, "Step charge was undone.")
	out, err := r.order(key, map[string]int{}, func() {})
	require.NoError(t, err)
	require.Equal(t, 402, out)
}

func TestARefusalIsCompletedOnlyWithAWordThatItsStepsAreUndone(t *testing.T) {
	r, id, _ := paid(t, nil, func(r *rig, ctx context.Context) { r.done(ctx, "charge") })
	require.Contains(t, r.get(act(id, "completed")).text, "If the response is a failure")
	form := r.form(id, "completed", url.Values{"known": {"yes"}, "status": {"402"}})
	r.posts(form, http.StatusUnprocessableEntity, "the steps have not been undone")
	require.Zero(t, r.changes(id))
	form.Set("undone", "1")
	r.decides(form, "Step charge was undone.")
}

// A compensation needs the result: who says that there is none reads what follows.
func TestTheFormSaysWhatAStepWithoutAResultLeadsTo(t *testing.T) {
	r := newRig(t, console.Options{})
	page := func(id string) string { return r.get(act(id, "released")).text }
	without := page(r.diedCharging(idem.Operation{Name: "order"}.Key("acme", "o-1")))
	require.Contains(t, without, "most handlers fail for good, and undo the other steps<")
	r.crash(refund.Key("acme", "r-1"), func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "charge", func(context.Context) (int, error) { r.Crash(); return 7, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error { return nil }})
	})
	r.lapse()
	form := r.form(refund.Key("acme", "r-1").ID(), "released")
	shown := []string{page(refund.Key("acme", "r-1").ID())}
	form.Set("step-0", "took_effect_without_result")
	form.Set("look", "1")
	shown = append(shown, r.post("/ops/act", form).text)
	for _, with := range shown {
		require.Contains(t, with, "the operation is parked again, unless the step returns nothing, since it has "+
			"a compensation, which needs its result")
		require.NotContains(t, with, "undo the other steps")
	}
}
