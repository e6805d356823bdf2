package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

func post(change ...func(*request)) request {
	r := request{
		method: "POST", path: "/payments", tenant: "blue", body: `{"amount":4999,"currency":"EUR"}`,
		header: map[string]string{"Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9324", "Content-Type": "application/json"},
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func header(name, value string) func(*request) {
	return func(r *request) {
		if r.header[name] = value; value == "" {
			delete(r.header, name)
		}
	}
}

// want is an answer: the status in either profile, and the code of a refusal or
// the handler's body.
type want struct {
	status int
	stripe int // if it differs
	code   idemhttp.Code
	body   string
	replay bool
}

// row is a line of the contract: a request sent twice (or something else the
// second time), and what the client gets.
type row struct {
	name          string
	options       func(*idemhttp.Options)
	store         func() idem.Store
	handler       idemhttp.Next
	send, again   func(*request)
	first, second want
	runs          int
	// change of the options before the second request: another deployment.
	change func(*idemhttp.Options)
	// only is the profile that the row holds for; nil means both.
	only *idemhttp.Profile
	// within is the time left until the kill; zero means no limit.
	within time.Duration
}

func nobody(context.Context, *idemhttp.Request) (string, error) { return "", nil }

func tooOld(o *idemhttp.Options) { o.MaxAge = &idemhttp.MaxAge{Header: "First-Sent"} }

// profiles are the two sets of answers, with their mark of a replay.
var profiles = map[idemhttp.Profile]string{idemhttp.IETF: "Idempotency-Replayed", idemhttp.Stripe: "Idempotent-Replayed"}

func answering(status int, body string) idemhttp.Next {
	return func(context.Context) (*idemhttp.Response, error) {
		return &idemhttp.Response{Status: status, Body: []byte(body), Headers: map[string]string{"x-own": body}}, nil
	}
}

func rows() []row {
	ok := answering(201, "made")
	keep := func(*request) {}
	refused := func(name string, status int, code idemhttp.Code, send func(*request)) row {
		w := want{status: status, code: code}
		return row{name: name, handler: ok, send: send, again: send, first: w, second: w}
	}
	down := func(name string, status int, code idemhttp.Code, store idem.Store) row {
		r := refused(name, status, code, keep)
		r.store = func() idem.Store { return store }
		return r
	}
	replayed := func(status int) row {
		return row{
			name: fmt.Sprint("status ", status), handler: answering(status, "x"), send: keep, again: keep,
			first: want{status: status, body: "x"}, second: want{status: status, body: "x", replay: true}, runs: 1,
		}
	}
	bodiless := func(status int) row {
		r := replayed(status)
		r.handler, r.first.body, r.second.body = answering(status, ""), "", ""
		return r
	}
	tried := func(status int) row {
		w := want{status: status, body: "x"}
		return row{name: fmt.Sprint("status ", status), handler: answering(status, "x"), send: keep, again: keep, first: w, second: w, runs: 2}
	}
	open := func(status int, change func(*request), second want, runs int) row {
		return row{
			name: fmt.Sprint("status ", status), handler: answering(status, "x"), send: change, again: change,
			first: want{status: status, body: "x"}, second: second, runs: runs,
		}
	}
	in := func(p idemhttp.Profile, r row) row {
		r.only = &p
		return r
	}
	repeatable := func(r *request) { r.path = "/transfers" }
	unknown := want{status: 409, code: idemhttp.CodeOutcomeUnknown}
	reuse := func(name string, again func(*request)) row {
		return row{
			name: name, handler: ok, send: keep, again: again, first: want{status: 201, body: "made"},
			second: want{status: 422, stripe: 400, code: idemhttp.CodeKeyReused}, runs: 1,
		}
	}
	return []row{
		replayed(200), replayed(201), bodiless(204), replayed(303), in(idemhttp.IETF, replayed(400)), in(idemhttp.Stripe, tried(400)), replayed(402), replayed(404), replayed(422),
		tried(307), tried(308), tried(401), tried(403), tried(425), tried(429),
		open(408, keep, unknown, 1), open(500, keep, unknown, 1), open(503, keep, unknown, 1),
		open(408, repeatable, want{status: 408, body: "x"}, 2), open(500, repeatable, want{status: 500, body: "x"}, 2),
		refused("undeclared", 500, idemhttp.CodeUndeclared, func(r *request) { r.path = "/refunds" }),
		refused("no tenant", 403, idemhttp.CodeTenantMissing, func(r *request) { r.tenant = "" }),
		{
			name: "no principal", options: func(o *idemhttp.Options) { o.Principal = nobody }, handler: ok, send: keep, again: keep,
			first: want{status: 403, code: idemhttp.CodePrincipalMissing}, second: want{status: 403, code: idemhttp.CodePrincipalMissing},
		},
		refused("no key", 400, idemhttp.CodeKeyMissing, header("Idempotency-Key", "")),
		in(idemhttp.IETF, refused("short key", 400, idemhttp.CodeKeyInvalid, header("Idempotency-Key", "short"))),
		refused("bad key", 400, idemhttp.CodeKeyInvalid, header("Idempotency-Key", "key-of-an-umläut")),
		refused("long key", 400, idemhttp.CodeKeyInvalid, header("Idempotency-Key", strings.Repeat("k", 256))),
		in(idemhttp.IETF, refused("repeated key", 400, idemhttp.CodeKeyInvalid, header("Idempotency-Key", strings.Repeat("k", 16)+","+strings.Repeat("k", 16)))),
		refused("bad body", 400, idemhttp.CodeNotCanonical, func(r *request) { r.body = `{"a":` }),
		refused("ambiguous body", 400, idemhttp.CodeNotCanonical, func(r *request) { r.body = `{"a":1,"a":2}` }),
		reuse("another body", func(r *request) { r.body = `{"amount":1}` }),
		reuse("another type", header("Content-Type", "text/plain")),
		in(idemhttp.IETF, row{
			name: "same meaning", handler: ok, send: keep,
			again: func(r *request) {
				r.body = `{"currency": "EUR", "amount": 4.999e3}`
				r.header = map[string]string{"IDEMPOTENCY-KEY": `"` + r.header["Idempotency-Key"] + `"`, "content-type": "application/json"}
			},
			first: want{status: 201, body: "made"}, second: want{status: 201, body: "made", replay: true}, runs: 1,
		}),
		{
			name: "another tenant", handler: ok, send: keep, again: func(r *request) { r.tenant = "green" },
			first: want{status: 201, body: "made"}, second: want{status: 201, body: "made"}, runs: 2,
		},
		{
			name: "method that needs no key", handler: ok, send: func(r *request) { r.method = "GET" }, again: func(r *request) { r.method = "GET" },
			first: want{status: 201, body: "made"}, second: want{status: 201, body: "made"}, runs: 2,
		},
		{
			name: "too large to keep", store: func() idem.Store { return memstore.Options{MaxResult: 64}.New() },
			handler: answering(201, strings.Repeat("x", 100)), send: keep, again: keep,
			first: want{status: 201, body: strings.Repeat("x", 100)}, second: want{status: 409, code: idemhttp.CodeOutcomeUnavailable}, runs: 1,
		},
		{
			name: "not executed beside a response", send: keep, again: keep, runs: 2,
			handler: func(ctx context.Context) (*idemhttp.Response, error) {
				idem.SetNotExecuted(ctx)
				return &idemhttp.Response{Status: 409, Body: []byte("closed")}, nil
			},
			first: want{status: 409, body: "closed"}, second: want{status: 409, body: "closed"},
		},
		{
			name: "first sent too long ago", options: tooOld, handler: ok, runs: 0,
			send: header("First-Sent", "2026-11-19T12:00:00Z"), again: header("First-Sent", "2026-11-19T12:00:00Z"),
			first: want{status: 412, code: idemhttp.CodeKeyTooOld}, second: want{status: 412, code: idemhttp.CodeKeyTooOld},
		},
		{
			name: "first sent too long ago, but recorded", options: tooOld, handler: ok, runs: 1,
			send: header("First-Sent", "2026-11-21T11:59:00Z"), again: header("First-Sent", "2026-11-19T12:00:00Z"),
			first: want{status: 201, body: "made"}, second: want{status: 201, body: "made", replay: true},
		},
		{
			name: "another version of the response", handler: ok, send: keep, again: keep, runs: 1,
			change: func(o *idemhttp.Options) { o.ResponseVersion = 1 },
			first:  want{status: 201, body: "made"}, second: want{status: 503, code: idemhttp.CodeVersionMismatch},
		},
		{
			name: "too little time", handler: ok, send: keep, again: keep,
			within: 50 * time.Millisecond,
			first:  want{status: 503, code: idemhttp.CodeOutOfTime}, second: want{status: 503, code: idemhttp.CodeOutOfTime},
		},
		down("store down", 503, idemhttp.CodeStoreUnavailable, unreachable()),
		down("record damaged", 503, idemhttp.CodeRecordUnreadable, damaged()),
		down("accepted", 202, idemhttp.CodeAccepted, occupied{memory(), idem.Record{State: idem.Pending}}),
		down("in flight", 409, idemhttp.CodeInProgress, occupied{memory(), idem.Record{State: idem.InProgress, LeaseUntil: noon.Add(time.Minute)}}),
	}
}

// Every row of the contract, first and second time, in both profiles, through
// every gateway.
func TestContract(t *testing.T) {
	for name, d := range entryPoints {
		for profile := range profiles {
			for _, r := range rows() {
				if r.only != nil && *r.only != profile {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/%s", name, profile, r.name), func(t *testing.T) { r.test(t, d, profile) })
			}
		}
	}
}

func (r row) test(t *testing.T, d entryPoint, profile idemhttp.Profile) {
	store, n := idem.Store(memory()), 0
	if r.store != nil {
		store = r.store()
	}
	options := func(o *idemhttp.Options) {
		o.Profile = profile
		if r.options != nil {
			r.options(o)
		}
	}
	next := func(ctx context.Context) (*idemhttp.Response, error) {
		n++
		return r.handler(ctx)
	}
	routes := idemhttp.Routes{"POST /payments": charge, "POST /transfers": transfer}
	engine, ctx := newEngine(t, store), t.Context()
	if r.within > 0 {
		ctx = idem.WithKillTime(ctx, time.Now().Add(r.within))
	}
	serve := d.serve(t, engine, routes, next, options)
	first, err := serve(ctx, post(r.send))
	require.NoError(t, err)
	r.first.check(t, first, profile)
	if r.change != nil {
		serve = d.serve(t, engine, routes, next, options, r.change)
	}
	second, err := serve(ctx, post(r.again))
	require.NoError(t, err)
	r.second.check(t, second, profile)
	require.Equal(t, r.runs, n, "executions")
	if r.second.replay {
		h := wire(second)
		require.Equal(t, noon.Add(24*time.Hour).Format(http.TimeFormat), h["idempotency-expires"])
		require.Equal(t, noon.Format(http.TimeFormat), h["idempotency-original-date"])
		require.Equal(t, unmarked(wire(first)), unmarked(h))
		require.Equal(t, first.Body, second.Body)
		require.Equal(t, first.Status, second.Status)
		require.Equal(t, first.Base64, second.Base64)
	}
}

// unmarked takes off the marks of a replay, and what a replay never has.
func unmarked(header map[string]string) map[string]string {
	for _, name := range []string{"idempotency-replayed", "idempotent-replayed", "idempotency-expires", "idempotency-original-date", "set-cookie"} {
		delete(header, name)
	}
	return header
}

func (w want) check(t *testing.T, got *idemhttp.Response, profile idemhttp.Profile) {
	t.Helper()
	if profile == idemhttp.Stripe && w.stripe != 0 {
		w.status = w.stripe
	}
	require.Equal(t, w.status, got.Status, "%s", got.Body)
	header := wire(got)
	for p, mark := range profiles {
		_, marked := header[strings.ToLower(mark)]
		require.Equal(t, w.replay && p == profile, marked, mark)
	}
	if w.code == "" {
		require.Equal(t, w.body, string(got.Body))
		return
	}
	var p struct {
		idemhttp.Problem
		idemhttp.StripeError
	}
	require.NoError(t, json.Unmarshal(got.Body, &p))
	media, code, retryable := idemhttp.ProblemMediaType, p.Problem.Code, p.Problem.Retryable
	if profile == idemhttp.Stripe {
		code, retryable = p.Error.Code, p.Error.Retryable
		require.Equal(t, fmt.Sprint(retryable), header["stripe-should-retry"])
		require.NotEmpty(t, p.Error.Type)
	} else {
		require.Equal(t, w.status, p.Status)
	}
	if w.status < 400 || profile == idemhttp.Stripe {
		media = "application/json"
	}
	require.Equal(t, w.code, code)
	require.Equal(t, media, header["content-type"])
	require.Equal(t, "no-store", header["cache-control"])
	require.Equal(t, retryable, header["retry-after"] != "", "Retry-After goes with retryable")
}
