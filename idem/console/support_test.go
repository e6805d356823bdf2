package console_test

import (
	"context"
	"html"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/story"
)

var (
	refund = story.Refund

	errCut = story.ErrCut
)

// rig is a service, and the console of its table, mounted under a prefix.
type rig struct {
	*story.Service
	t *testing.T
	r *reconcile.Reconciler
	h http.Handler
	// shown is the last form that a transcript has shown, and live what is followed of its page.
	shown url.Values
	live  string
	// before is what the table had before the request.
	before []any
}

func newRig(t *testing.T, o console.Options) *rig {
	t.Helper()
	r := &rig{Service: story.New(t), t: t}
	rc, err := reconcile.New(r.Faults, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(t, err)
	r.mount(rc, o)
	return r
}

// mount makes the console one of these options.
func (r *rig) mount(rc *reconcile.Reconciler, o console.Options) {
	r.t.Helper()
	if o.Prefix == "" {
		o.Prefix = "/ops"
	}
	if o.Who == nil {
		o.Who = console.ThisMachine("alice")
	}
	o.Now, o.Log = r.Clock.Now, slog.New(slog.DiscardHandler)
	var err error
	r.r = rc
	r.h, err = console.New(rc, &o)
	require.NoError(r.t, err)
}

// newQuestion is a rig with a refund whose outcome is unknown and whose attempt has ended.
func newQuestion(t *testing.T, o console.Options) (r *rig, id string) {
	t.Helper()
	r = newRig(t, o)
	id = r.end(refund.Key("acme", "r-1"), nil, errCut)
	r.lapse()
	return r, id
}

// end makes a call that ends so, and returns its record's id.
func (r *rig) end(key idem.Key, out any, err error) string {
	r.t.Helper()
	_, _ = idem.Do(r.t.Context(), r.Engine, key, 1, func(context.Context, int) (any, error) { return out, err })
	return key.ID()
}

// over makes the console one over another store.
func (r *rig) over(store reconcile.Store) {
	r.t.Helper()
	rc, err := reconcile.New(store, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(r.t, err)
	r.mount(rc, console.Options{})
}

// lapse lets leases end.
func (r *rig) lapse() { r.Clock.Advance(idem.DefaultLease + idem.DefaultMargin + time.Second) }

// request is one of a browser on this machine.
func request(method, target string, form url.Values) *http.Request {
	req := httptest.NewRequest(method, "http://127.0.0.1:8080"+target, strings.NewReader(form.Encode()))
	req.RemoteAddr = "127.0.0.1:40000"
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("Origin", "http://127.0.0.1:8080")
	}
	return req
}

type answer struct {
	*http.Response
	text string
}

func (r *rig) do(req *http.Request) answer {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, req)
	res := w.Result()
	body, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return answer{res, string(body)}
}

func (r *rig) get(target string) answer {
	r.t.Helper()
	return r.do(request(http.MethodGet, target, nil))
}

func (r *rig) post(target string, form url.Values) answer {
	r.t.Helper()
	return r.do(request(http.MethodPost, target, form))
}

// posts sends the form of a decision, and gets this status and text.
func (r *rig) posts(form url.Values, status int, text string) answer {
	r.t.Helper()
	a := r.post("/ops/act", form)
	require.Equal(r.t, status, a.StatusCode, a.text)
	require.Contains(r.t, a.text, text)
	return a
}

// record is the address of a record's page.
func record(id string) string { return "/ops/record?" + url.Values{"id": {id}}.Encode() }

// act is the address of the page of a decision.
func act(id, to string) string { return "/ops/act?" + url.Values{"id": {id}, "to": {to}}.Encode() }

var hidden = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// formOf is what the page's form sends.
func formOf(page answer) url.Values {
	form := url.Values{"why": {"the provider's console says so"}}
	if strings.Contains(page.text, `name="says"`) {
		form.Set("says", "no such refund")
	}
	for _, m := range hidden.FindAllStringSubmatch(page.text, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}

// form opens the page of a decision and returns what its form sends, with the reason and what is typed.
func (r *rig) form(id, to string, typed ...url.Values) url.Values {
	r.t.Helper()
	page := r.get(act(id, to))
	require.Equal(r.t, http.StatusOK, page.StatusCode, page.text)
	form := formOf(page)
	require.NotEmpty(r.t, form.Get("token"), page.text)
	for _, values := range typed {
		maps.Copy(form, values)
	}
	return form
}

func (r *rig) state(id string) idem.State {
	r.t.Helper()
	rec, err := r.r.Lookup(r.t.Context(), id)
	require.NoError(r.t, err)
	if rec == nil {
		return idem.Absent
	}
	return rec.State
}

// changes counts the changes of the record.
func (r *rig) changes(id string) int {
	r.t.Helper()
	all, err := r.r.History(r.t.Context(), id)
	require.NoError(r.t, err)
	return len(all)
}
