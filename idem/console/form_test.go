package console_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/protocol"
)

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
