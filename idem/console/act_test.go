package console_test

import (
	"context"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// Back, and another choice: the same form says something else then.
func TestADecisionIsMadeOnceAndIsRecorded(t *testing.T) {
	for to, tt := range map[string]struct {
		ended         error
		first, second url.Values
		says          string
	}{
		"completed": {errCut, url.Values{"known": {"yes"}, "result": {`{"number":"re_1"}`}, "ref": {"re_1"}},
			url.Values{"result": {`{"number":"re_2"}`}}, "Resolved: from unknown to completed"},
		"failed": {errCut, url.Values{"message": {"the card was declined"}, "code": {"declined"}},
			url.Values{"message": {"no such card"}}, "Resolved: from unknown to failed"},
		"released":  {errCut, nil, url.Values{"ref": {"re_1"}}, "Resolved: from unknown to released"},
		"extended":  {nil, url.Values{"days": {"30"}}, url.Values{"days": {"366"}}, "Extended"},
		"forgotten": {nil, nil, nil, "Forgotten: the record was removed."}, // who removed it, and why, is kept
	} {
		t.Run(to, func(t *testing.T) {
			r := newRig(t, console.Options{})
			id := r.end(refund.Key("acme", "r-1"), 7, tt.ended)
			r.lapse()
			form := r.form(id, to, tt.first)
			r.decides(form, "<strong>Recorded.</strong> "+tt.says)
			history, err := r.r.History(t.Context(), id)
			require.NoError(t, err)
			why, _, _ := strings.Cut(history[0].Why, "; the provider says: ")
			require.Equal(t, []string{"alice", "the provider's console says so", "console"},
				[]string{history[0].Who, why, history[0].Tool})
			state := map[string]idem.State{"extended": idem.Completed, "forgotten": idem.Absent}[to]
			if tt.ended != nil {
				state = idem.State(to)
			}
			require.Equal(t, state, r.state(id))
			if to == "extended" {
				kept := r.Record(refund.Key("acme", "r-1")).ExpiresAt
				require.WithinDuration(t, r.Clock.Now().Add(30*24*time.Hour), kept, 5*time.Second)
			}
			if tt.second != nil {
				maps.Copy(form, tt.second)
				r.posts(form, http.StatusConflict, "<h1>The record has changed</h1>")
				require.Equal(t, 1, r.changes(id))
			}
		})
	}
}

// The page that tells it is followed, and exchanged after another one's change.
func TestADecisionIsConfirmedToItsOperatorOnly(t *testing.T) {
	who := "alice"
	r, id := newQuestion(t, console.Options{Who: func(*http.Request) (string, error) { return who, nil }})
	done := r.post("/ops/act", r.form(id, "completed")).Header.Get("Location")
	require.Contains(t, r.get(done).text,
		"<strong>Recorded.</strong> Resolved: from unknown to completed, attempt 1. By alice,")
	r.Clock.Advance(time.Second)
	who = "bob"
	require.Contains(t, r.get(r.post("/ops/act", r.form(id, "released")).Header.Get("Location")).text,
		"to released, attempt 1. By bob,")
	who = "alice"
	require.Contains(t, r.get(done).text,
		"<strong>Recorded.</strong> Resolved: from unknown to completed, attempt 1. By alice,")
	require.NotContains(t, r.get("/ops/record?done=1&"+url.Values{"id": {id}}.Encode()).text, "<strong>Recorded.</strong>")
}

// What another operator does, or the network, while a form is on its way: the decision is made once or not at all, and
// its operator reads which. The same form again finds out.
func TestADecisionThatMeetsAnotherChangeOrAFault(t *testing.T) {
	const changed, lost = "<h1>The record has changed</h1>", "did not say whether the change was made"
	key := refund.Key("acme", "r-1")
	for name, tt := range map[string]struct {
		meets  func(r *rig, id string)
		status int
		says   string
		state  idem.State
		again  int
	}{
		"the same decision of another tab": {func(r *rig, id string) {
			r.posts(r.form(id, "released"), http.StatusSeeOther, "")
		}, http.StatusConflict, changed, idem.Released, http.StatusConflict},
		"another attempt that is parked too": {func(r *rig, id string) {
			r.resolve(id, idem.Released)
			r.end(key, nil, errCut)
			r.lapse()
		}, http.StatusConflict, changed, idem.Unknown, http.StatusConflict},
		"an outcome between look and write": {func(r *rig, id string) {
			r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
				r.resolve(id, idem.Completed)
				return c.Do(ctx)
			})
		}, http.StatusConflict, changed, idem.Completed, http.StatusConflict},
		"a lost request": {func(r *rig, _ string) {
			r.Faults.Always(idemtest.LoseRequest, idemtest.Settle)
		}, http.StatusServiceUnavailable, lost, idem.Unknown, http.StatusSeeOther},
		"a lost reply, and credentials that are refused then": {func(r *rig, _ string) {
			r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
				_ = c.Do(ctx)
				return &idem.StoreError{Op: "Settle", Ambiguous: true, Err: &idem.ConfigError{What: "dynamostore: table",
					Problem: "cannot be reached with these credentials"}}
			}, idemtest.Settle)
		}, http.StatusServiceUnavailable, lost, idem.Released, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			r, id := newQuestion(t, console.Options{})
			form := r.form(id, "released")
			tt.meets(r, id)
			a := r.posts(form, tt.status, tt.says)
			require.Equal(t, tt.status == http.StatusConflict, strings.Contains(a.text, "Nothing was changed"))
			require.Equal(t, tt.state, r.state(id))
			require.LessOrEqual(t, r.changes(id), 1)
			before := r.Record(key)
			r.Faults.Heal()
			r.posts(form, tt.again, "")
			require.Equal(t, tt.again == http.StatusSeeOther, before.Write != r.Record(key).Write)
		})
	}
}

func TestTwoClicksAtOnceChangeOnce(t *testing.T) {
	r, id := newQuestion(t, console.Options{})
	form := r.form(id, "released")
	var mu sync.Mutex
	codes := map[int]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			a := r.post("/ops/act", form)
			mu.Lock()
			defer mu.Unlock()
			codes[a.StatusCode]++
		})
	}
	all.Wait()
	require.Equal(t, map[int]int{http.StatusSeeOther: 1, http.StatusConflict: 7}, codes)
	require.Equal(t, 1, r.changes(id))
}

// A browser that is closed, or clicks again, ends its request.
func TestAChangeGoesOnWithoutItsBrowser(t *testing.T) {
	r, id := newQuestion(t, console.Options{})
	req := request(http.MethodPost, "/ops/act", r.form(id, "released"))
	ctx, cancel := context.WithCancel(req.Context())
	r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		cancel()
		require.NoError(t, ctx.Err())
		return c.Do(ctx)
	})
	r.do(req.WithContext(ctx))
	require.Equal(t, idem.Released, r.state(id))
}

func TestADecisionThatIsNotPossibleSaysWhy(t *testing.T) {
	r := newRig(t, console.Options{})
	id := r.end(refund.Key("acme", "r-1"), nil, errCut)
	page := r.get(act(id, "released"))
	require.Contains(t, page.text, "the parked attempt may still be running")
	require.NotContains(t, page.text, "<form")
	record := r.get(record(id))
	require.Contains(t, record.text, "the parked attempt may still be running")
	forgotten := r.get(act(id, "forgotten")).text
	require.Contains(t, forgotten, "only a record that has ended can be forgotten")
	require.Contains(t, r.get(act(id, "extended")).text, "only a record that has ended can be kept for longer")
	ended := r.end(refund.Key("acme", "r-2"), 7, nil)
	r.Clock.Advance(31 * 24 * time.Hour)
	require.Contains(t, r.get(act(ended, "extended")).text, "it has expired")
	require.NotContains(t, page.text+record.text+forgotten, "reconcile:",
		"the name of a package tells an operator nothing")
	require.Equal(t, http.StatusBadRequest, r.get(act(id, "pending")).StatusCode)
}

func TestTheProvidersAnswerIsKeptWithTheReason(t *testing.T) {
	r, id := newQuestion(t, console.Options{})
	form := r.form(id, "released", url.Values{"says": {" "}, "why": {"case 4711"}})
	r.posts(form, http.StatusUnprocessableEntity, "The provider&#39;s answer is missing")
	require.Zero(t, r.changes(id))
	form.Set("says", "no refund with this token")
	r.decides(form, "case 4711; the provider says: no refund with this token")

	// A later decision repeats it, and wants another answer.
	page := html.UnescapeString(r.get(act(id, "completed")).text)
	require.Regexp(t, "It replaces what was recorded before: from unknown to released, attempt 1, at .* by alice, "+
		"because: case 4711; the provider says: no refund with this token<", page)
	form = r.form(id, "completed", url.Values{"says": {""}})
	r.posts(form, http.StatusUnprocessableEntity, "The provider&#39;s answer is missing")
	form.Set("says", "it has re_1 after all")
	r.decides(form, "it has re_1 after all")

	// Who says what a step did has asked.
	step := r.diedCharging(idem.Operation{Name: "order"}.Key("acme", "o-1"))
	require.Contains(t, r.get(record(step)).text, ">Release to the next call …<", "it depends on what the step did")
	look := func(typed url.Values) string {
		form := r.form(step, "released", typed)
		form.Set("look", "1")
		return r.post("/ops/act", form).text
	}
	require.Contains(t, look(url.Values{"step-0": {"not_executed"}}), `<button class="danger">Danger: run it again<`)
	require.Contains(t, look(url.Values{"step-0": {"took_effect"}, "step-0-result": {"7"}}),
		"<button>Release to the next call<")
	form = r.form(step, "released", url.Values{"says": {""}, "step-0": {"not_executed"}})
	r.posts(form, http.StatusUnprocessableEntity, "The provider&#39;s answer is missing")
	maps.Copy(form, url.Values{"step-0": {"took_effect"}, "step-0-result": {"7"}})
	r.posts(form, http.StatusSeeOther, "")
}

// sealed is a store of records whose results are encrypted, without the key.
type sealed struct{ reconcile.Store }

func (s sealed) Get(ctx context.Context, id string) (*idem.Record, error) {
	rec, err := s.Store.Get(ctx, id)
	if rec != nil {
		rec.Sealed = true
	}
	return rec, err
}

func (s sealed) Result(context.Context, *idem.Record) ([]byte, error) {
	return nil, fmt.Errorf("%w: its results are encrypted", idem.ErrRecordUnreadable)
}

func (s sealed) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	if w.Sealed && len(w.Ending.Result) > 0 {
		return &idem.ConfigError{What: "dynamostore: Settle", Problem: "this store would write a plain one"}
	}
	return s.Store.Settle(ctx, now, w)
}

// A console without the key shows everything else, and records no plain result.
func TestARecordWhoseResultsAreEncrypted(t *testing.T) {
	r, question := newQuestion(t, console.Options{})
	done := r.end(refund.Key("acme", "r-2"), "secret result", nil)
	r.over(sealed{r.Faults})
	for _, show := range []string{"", "&show=result"} {
		page := r.get("/ops/record?id=" + url.QueryEscape(done) + show)
		require.Equal(t, http.StatusOK, page.StatusCode)
		require.NotContains(t, page.text, "secret")
		require.Contains(t, page.text, "15 bytes")
		if show != "" {
			require.Contains(t, page.text, "encrypted")
		}
	}
	decide := func(known, result string) answer {
		form := r.form(question, "completed", url.Values{"known": {known}, "result": {result}})
		return r.post("/ops/act", form)
	}
	refused := decide("yes", `"re_4711"`)
	require.Equal(t, http.StatusUnprocessableEntity, refused.StatusCode)
	require.Contains(t, refused.text, "this store would write a plain one")
	require.Equal(t, idem.Unknown, r.state(question))
	require.Equal(t, http.StatusSeeOther, decide("no", "").StatusCode)
	require.Equal(t, idem.Completed, r.state(question))
}
