package console_test

import (
	"context"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemhttp"
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

func TestAForgedFormIsRefused(t *testing.T) {
	r := newRig(t, console.Options{Who: func(req *http.Request) (string, error) { return req.Header.Get("X-Who"), nil }})
	as := func(name string, req *http.Request) *http.Request { req.Header.Set("X-Who", name); return req }
	id := r.end(refund.Key("acme", "r-1"), nil, errCut)
	other := r.end(refund.Key("acme", "r-2"), nil, errCut)
	r.lapse()
	form := formOf(r.do(as("alice", request(http.MethodGet, act(id, "released"), nil))))
	forged := map[string]func(f url.Values){
		"no token":            func(f url.Values) { f.Del("token") },
		"another token":       func(f url.Values) { f.Set("token", "AAAA") },
		"another record":      func(f url.Values) { f.Set("id", other) },
		"another decision":    func(f url.Values) { f.Set("to", "failed") },
		"a view of one's own": func(f url.Values) { f.Set("seen", r.Record(refund.Key("acme", "r-2")).Write) },
		"nothing was seen":    func(f url.Values) { f.Set("seen", "") },
		"another time":        func(f url.Values) { f.Set("issued", "9999999999") },
	}
	for name, change := range forged {
		t.Run(name, func(t *testing.T) {
			f := maps.Clone(form)
			change(f)
			require.Equal(t, http.StatusForbidden, r.do(as("alice", request(http.MethodPost, "/ops/act", f))).StatusCode)
		})
	}
	t.Run("another operator", func(t *testing.T) {
		require.Equal(t, http.StatusForbidden, r.do(as("mallory", request(http.MethodPost, "/ops/act", form))).StatusCode)
	})
	t.Run("in the address", func(t *testing.T) {
		require.Equal(t, http.StatusForbidden,
			r.do(as("alice", request(http.MethodPost, "/ops/act?"+form.Encode(), nil))).StatusCode)
	})
	require.Zero(t, r.changes(id)+r.changes(other))
	require.Equal(t, http.StatusSeeOther, r.do(as("alice", request(http.MethodPost, "/ops/act", form))).StatusCode,
		"it was good otherwise")
}

func TestAnOldFormIsRefused(t *testing.T) {
	r, id := newQuestion(t, console.Options{})
	form := r.form(id, "released")
	r.Clock.Advance(61 * time.Minute)
	r.posts(form, http.StatusConflict, "<h1>Shown too long ago</h1>")
	require.Zero(t, r.changes(id))
}

// A form with a mistake is shown again, with all that was typed. The field that the mistake is in is marked, and no
// other; none if it is in all of them.
func TestAFormWithAMistakeIsShownAgain(t *testing.T) {
	r, request, _ := paid(t, nil)
	id := r.end(refund.Key("acme", "r-1"), nil, errCut)
	died := r.diedCharging(idem.Operation{Name: "order"}.Key("acme", "o-1"))
	done := r.end(idem.Operation{Name: "refund", Retention: 30 * 24 * time.Hour}.Key("acme", "r-2"), 7, nil)
	shown := r.get(record(died)).text
	require.Contains(t, shown, "You say what became of each of them: <code>charge</code>.")
	require.NotContains(t, shown, "Resolution.Steps", "that is for programs")
	require.Contains(t, shown, "<code>"+protocol.Token(died, "charge")+`</code> <span class="hint">of step charge, which `+
		`was interrupted</span>`, "by which the provider knows the step, and not the operation")
	const (
		why, message, says = `<textarea id="why" `, `<input id="message" `, `<textarea id="says" `
		known, status      = `<fieldset role="radiogroup" `, `<input id="status" `
		headers, result    = `<textarea class="result" id="headers" `, `<textarea class="result" id="result" `
		step               = `<fieldset class="step" role="radiogroup"`
		stepResult         = `<textarea class="result" id="step-0-res`
		stepMessage        = `<input id="step-0-message"`
		chosen             = "A result is typed, and it is chosen that it is not known"
		notJSON            = "The result of step charge is not JSON"
		noWord             = "Say what became of step charge."
	)
	typed := func(pairs ...string) url.Values {
		form := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			form.Set(pairs[i], pairs[i+1])
		}
		return form
	}
	for _, tt := range []struct {
		id, to       string
		typed        url.Values
		says, marked string
	}{
		{id, "released", typed("why", "  "), "The reason is missing", why},
		{id, "released", typed("says", " "), "The provider's answer is missing", says},
		{id, "failed", nil, "The message is missing", message},
		{id, "completed", typed("known", "yes"), "The result is missing", result},
		{id, "completed", typed("known", "yes", "result", "{not json"), "is not JSON", ""},
		{id, "completed", typed("known", "no", "result", "7"), chosen, known},
		{id, "completed", typed("known", "no", "ref", strings.Repeat("x", 300)), "Ref has 300 bytes", ""},
		{done, "extended", typed("days", "7"), "kept as long already", `<select id="days"`},
		{done, "extended", typed("days", "1000000"), "Choose for how long", `<select id="days"`},
		{request, "completed", typed("known", "no", "status", "201"), chosen, known},
		{request, "completed", typed("known", "yes"), `the status is "": it is a number`, status},
		{request, "completed", typed("known", "yes", "status", "99"), "the status is 99", status},
		{request, "completed", typed("known", "yes", "status", "201", "headers", "nonsense"), `"nonsense" is no header`,
			headers},
		{request, "completed", typed("known", "yes", "status", "201", "headers", "X-A: 1\r\na b: c"),
			`"a b: c" is no header`, headers},
		{request, "completed", typed("known", "yes", "status", "201", "headers", "Content-Length: 3"),
			"follows from the body", headers},
		{request, "completed", typed("known", "yes", "status", "201", "headers", asJSON, "result", "{"),
			"the body is not JSON", result},
		{request, "completed", typed("known", "yes", "status", "204", "result", "{}"), "status 204 has no body", result},
		{died, "released", nil, noWord, step},
		{died, "released", typed("step-0", "undone"), noWord, step},
		{died, "released", typed("step-1", "not_executed"), noWord, step},
		{died, "released", typed("step-0", "took_effect"), notJSON, stepResult},
		{died, "released", typed("step-0", "took_effect", "step-0-result", "{seven"), notJSON, stepResult},
		{died, "released", typed("step-0", "took_effect", "step-0-result", "null"), "The result of step charge is null",
			stepResult},
		{died, "released", typed("step-0", "not_executed", "step-0-result", "7"),
			"A result of step charge is typed, and something else", step},
		{died, "released", typed("step-0", "not_executed", "step-0-message", "declined"),
			"A failure of step charge is typed, and something else", step},
		{died, "released", typed("step-0", "failed"), "The message of the failure of step charge is missing", stepMessage},
	} {
		looks := []string{""}
		if tt.id == died {
			looks = append(looks, "1")
		}
		for _, look := range looks {
			page := r.posts(r.form(tt.id, tt.to, tt.typed, typed("look", look)), http.StatusUnprocessableEntity,
				`id="mistake"`).text
			require.Contains(t, html.UnescapeString(page), tt.says)
			require.Contains(t, page, `role="alert"`)
			for field, v := range tt.typed {
				if field != "step-0" && field != "step-1" && field != "days" { // which is none of the choices
					require.Contains(t, page, strings.TrimSpace(v[0]), "what was typed is not lost")
				}
			}
			fields := regexp.MustCompile(`<[^>]+ aria-invalid="true" aria-describedby="mistake"[^>]*>`).FindAllString(page, -1)
			require.Len(t, fields, min(len(tt.marked), 1), tt.says)
			if tt.marked != "" {
				require.True(t, strings.HasPrefix(fields[0], tt.marked), "%s, and not %s", fields[0], tt.marked)
			}
		}
	}
	require.Zero(t, r.changes(id)+r.changes(request)+r.changes(died)+r.changes(done))
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

// paid is a rig with a question of an HTTP route, whose handler did this, and a call of it.
func paid(t *testing.T, encode func(*idem.Record, *idemhttp.Response) (protocol.Encoded, error),
	did ...func(*rig, context.Context)) (r *rig, id string, call func() *httptest.ResponseRecorder) {
	t.Helper()
	r = newRig(t, console.Options{Encode: encode})
	contract, err := idemhttp.New(r.Engine, idemhttp.Routes{"POST /refunds": refund}, idemhttp.SingleTenant, nil)
	require.NoError(t, err)
	served := contract.Middleware(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, do := range did {
			do(r, req.Context())
		}
		w.WriteHeader(http.StatusBadGateway)
	}), nil)
	call = func() *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodPost, "/refunds", strings.NewReader("{}"))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "refund-0000000000001")
		w := httptest.NewRecorder()
		served.ServeHTTP(w, req)
		return w
	}
	call()
	id = r.Store.Records()[0].ID
	r.lapse()
	return r, id, call
}

func TestAnHTTPRequestIsCompletedWithItsResponse(t *testing.T) {
	r, id, call := paid(t, nil)
	require.Equal(t, idem.Unknown, r.state(id))
	require.Contains(t, r.get(record(id)).text, "not_repeatable, over HTTP")
	require.Contains(t, r.get(record(id)).text, "If you give its result: The recorded result. The handler does not run. "+
		"If not: HTTP 409 outcome_unavailable")
	page := r.get(act(id, "completed")).text
	require.NotContains(t, page, "mistake", "nothing was typed yet")
	require.Contains(t, page, "they get an error, HTTP 409 outcome_unavailable")
	require.NotContains(t, page, "a message is")
	form := r.form(id, "completed", url.Values{"known": {"yes"}, "status": {"201"}, "look": {"1"},
		"headers": {"content-type: application/json\r\nLink: </a>\r\nLink: </b>\r\nSet-Cookie: session=1"},
		"result":  {"{\"number\":\r\n\"re_1\"}"}})
	look := html.UnescapeString(r.post("/ops/act", form).text)
	require.Contains(t, look, "HTTP 201 Created\nContent-Type: application/json\nLink: </a>\nLink: </b>\n")
	require.Contains(t, look, "Set-Cookie is not recorded")
	require.NotContains(t, look, "The response has", "no doubt")
	doubtful := maps.Clone(form)
	doubtful.Del("headers")
	require.Contains(t, r.post("/ops/act", doubtful).text, "The response has a body and no Content-Type")
	require.Zero(t, r.changes(id))
	form.Del("look")
	r.posts(form, http.StatusSeeOther, "")
	w := call()
	require.Equal(t, http.StatusCreated, w.Code)
	require.Equal(t, "{\"number\":\n\"re_1\"}", w.Body.String())
	require.Equal(t, []string{"</a>", "</b>"}, w.Header().Values("Link"))
	require.Contains(t, r.get(record(id)+"&show=result").text, "HTTP 201 Created\n")
}

const asJSON = "Content-Type: application/json"

func TestAnHTTPRequestWithoutItsResponse(t *testing.T) {
	r, id, call := paid(t, nil)
	r.posts(r.form(id, "completed"), http.StatusSeeOther, "")
	require.Equal(t, http.StatusConflict, call().Code)
}

func TestAServiceEncodesTheResponsesItself(t *testing.T) {
	r, id, call := paid(t, func(_ *idem.Record, res *idemhttp.Response) (protocol.Encoded, error) {
		res.Body = nil // a redaction
		return idemhttp.Encode(res)
	})
	r.posts(r.form(id, "completed", url.Values{"known": {"yes"}, "status": {"201"}, "result": {"4242"}}),
		http.StatusSeeOther, "")
	w := call()
	require.Equal(t, http.StatusCreated, w.Code)
	require.Empty(t, w.Body.String())
}

var followed = regexp.MustCompile(`data-live="[^"]*;v=([^"]+)"`)

// A preview is about the same record as its form: it does not say that there is news.
func TestAPreviewIsNoNews(t *testing.T) {
	r, id := newQuestion(t, console.Options{})
	step := r.diedCharging(idem.Operation{Name: "order"}.Key("acme", "o-1"))
	for name, tt := range map[string]struct {
		id, to string
		typed  url.Values
	}{
		"completed": {id, "completed", url.Values{"known": {"yes"}, "result": {"7"}}},
		"released":  {id, "released", nil},
		"steps":     {step, "released", url.Values{"step-0": {"took_effect"}, "step-0-result": {"7"}}},
		"a mistake": {step, "released", nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := followed.FindStringSubmatch(r.get(act(tt.id, tt.to)).text)
			form := r.form(tt.id, tt.to, tt.typed)
			form.Set("look", "1")
			after := followed.FindStringSubmatch(r.post("/ops/act", form).text)
			require.NotNil(t, before)
			require.Equal(t, before[1], after[1])
		})
	}
}

// A failure over HTTP is a 500; the page says so where it is decided.
func TestAFormSaysWhatTheCallerGets(t *testing.T) {
	r, id, _ := paid(t, nil)
	page := r.get(act(id, "failed")).text
	require.Contains(t, page, "later calls get it, as HTTP 500, or 502 behind a REST API")
	require.Contains(t, page, "such as 402, resolve to completed with that response.")
	require.NotContains(t, page, `class="danger"`)
	r, id = newQuestion(t, console.Options{})
	for _, to := range []string{"failed", "completed"} {
		page := r.get(act(id, to)).text
		require.Contains(t, page, "A message is acknowledged.")
		require.NotContains(t, page, "HTTP")
	}
}

// A decision that can repeat an effect says so before it is made, also without its colour.
func TestADecisionThatCanRepeatAnEffectSaysSo(t *testing.T) {
	r, id := newQuestion(t, console.Options{})
	const caution = "If the provider has it already, it happens twice"
	require.Contains(t, r.get(record(id)).text, caution)
	require.Contains(t, r.get(record(id)).text, ">Danger: run it again …<")
	for to, cautious := range map[string]bool{"released": true, "completed": false, "failed": false} {
		page := r.get(act(id, to)).text
		require.Equal(t, cautious, strings.Contains(page, caution), to)
		require.Equal(t, cautious, strings.Contains(page, `<button class="danger">Danger: run it again<`), to)
		require.Equal(t, cautious, strings.Contains(page, "What did the provider answer?"), to)
		require.Contains(t, page, protocol.Token(id, ""), "what to ask it by")
		require.Equal(t, to != "released", strings.Contains(page, `id="ref"`), "a release has no reference")
	}
	done := r.end(refund.Key("acme", "r-2"), 7, nil)
	require.Contains(t, r.get(act(done, "forgotten")).text, `<button class="danger">Danger: forget the record<`)
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
