package idemlambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

// request is what a client sends, before any front has seen it.
type request struct {
	method, path string
	header       map[string]string
	body         string
	tenant       string
}

type front func(context.Context, request) (*idemhttp.Response, error)

// fronts are all ways to the contract; each makes its own form of the request.
var fronts = map[string]func(*idem.Engine, idemhttp.Routes, *idemhttp.Options, idemhttp.Next) front{
	"neutral": func(e *idem.Engine, routes idemhttp.Routes, o *idemhttp.Options, next idemhttp.Next) front {
		c, err := idemhttp.New(e, routes, o)
		if err != nil {
			panic(err)
		}
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			header := map[string][]string{}
			for k, v := range r.header {
				header[k] = []string{v}
			}
			return c.Serve(ctx, &idemhttp.Request{
				Method: r.method, Route: r.path, Path: r.path, Header: header, Body: []byte(r.body),
				Identity: idemhttp.Identity{Claims: map[string]string{"tenant": r.tenant}},
			}, next)
		}
	},
	"HTTPAPI": func(e *idem.Engine, routes idemhttp.Routes, o *idemhttp.Options, next idemhttp.Next) front {
		h := HTTPAPI(e, routes, o, func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			res, err := next(ctx)
			if err != nil {
				return events.APIGatewayV2HTTPResponse{}, err
			}
			return toV2(res), nil
		})
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			e := events.APIGatewayV2HTTPRequest{
				Version: "2.0", RouteKey: r.method + " " + r.path, RawPath: r.path,
				Headers: map[string]string{}, Body: r.body,
			}
			e.RequestContext.HTTP.Method = r.method
			for k, v := range r.header {
				e.Headers[strings.ToLower(k)] = v
			}
			if r.tenant != "" {
				e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
					JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"tenant": r.tenant}},
				}
			}
			res, err := h(ctx, e)
			if err != nil {
				return nil, err
			}
			return fromV2(res), nil
		}
	},
}

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

// want is an answer: the status, and the code of a refusal or the handler's body.
type want struct {
	status int
	code   idemhttp.Code
	body   string
	replay bool
}

// row is a line of the contract: a request sent twice (or something else the
// second time), and what the client gets.
type row struct {
	name          string
	store         func() idem.Store
	handler       idemhttp.Next
	send, again   func(*request)
	first, second want
	runs          int
}

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
	repeatable := func(r *request) { r.path = "/transfers" }
	unknown := want{status: 409, code: idemhttp.CodeOutcomeUnknown}
	reuse := func(name string, again func(*request)) row {
		return row{
			name: name, handler: ok, send: keep, again: again, first: want{status: 201, body: "made"},
			second: want{status: 422, code: idemhttp.CodeKeyReused}, runs: 1,
		}
	}
	return []row{
		replayed(200), replayed(201), replayed(204), replayed(303), replayed(400), replayed(402), replayed(404), replayed(422),
		tried(401), tried(403), tried(425), tried(429),
		open(408, keep, unknown, 1), open(500, keep, unknown, 1), open(503, keep, unknown, 1),
		open(408, repeatable, want{status: 408, body: "x"}, 2), open(500, repeatable, want{status: 500, body: "x"}, 2),
		refused("undeclared", 500, idemhttp.CodeUndeclared, func(r *request) { r.path = "/refunds" }),
		refused("no tenant", 403, idemhttp.CodeTenantMissing, func(r *request) { r.tenant = "" }),
		refused("no key", 400, idemhttp.CodeKeyMissing, header("Idempotency-Key", "")),
		refused("short key", 400, idemhttp.CodeKeyInvalid, header("Idempotency-Key", "short")),
		refused("long key", 400, idemhttp.CodeKeyInvalid, header("Idempotency-Key", strings.Repeat("k", 256))),
		refused("repeated key", 400, idemhttp.CodeKeyInvalid, header("Idempotency-Key", strings.Repeat("k", 16)+","+strings.Repeat("k", 16))),
		refused("bad body", 400, idemhttp.CodeNotCanonical, func(r *request) { r.body = `{"a":` }),
		refused("ambiguous body", 400, idemhttp.CodeNotCanonical, func(r *request) { r.body = `{"a":1,"a":2}` }),
		reuse("another body", func(r *request) { r.body = `{"amount":1}` }),
		reuse("another type", header("Content-Type", "text/plain")),
		{
			name: "same meaning", handler: ok, send: keep,
			again: func(r *request) {
				r.body = `{"currency": "EUR", "amount": 4.999e3}`
				r.header = map[string]string{"IDEMPOTENCY-KEY": `"` + r.header["Idempotency-Key"] + `"`, "content-type": "application/json"}
			},
			first: want{status: 201, body: "made"}, second: want{status: 201, body: "made", replay: true}, runs: 1,
		},
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
		down("store down", 503, idemhttp.CodeStoreUnavailable, unreachable{memory()}),
		down("record damaged", 503, idemhttp.CodeRecordUnreadable, damaged{memory()}),
		down("accepted", 202, idemhttp.CodeAccepted, occupied{memory(), idem.Record{State: idem.Pending}}),
		down("in flight", 409, idemhttp.CodeInProgress, occupied{memory(), idem.Record{State: idem.InProgress, LeaseUntil: noon.Add(time.Minute)}}),
	}
}

var options = &idemhttp.Options{Tenant: idemhttp.Claim("tenant")}

// Every row of the contract, first and second time, through every front.
func TestContract(t *testing.T) {
	for name, open := range fronts {
		for _, r := range rows() {
			t.Run(name+"/"+r.name, func(t *testing.T) {
				store := idem.Store(memory())
				if r.store != nil {
					store = r.store()
				}
				n := 0
				serve := open(newEngine(t, store), idemhttp.Routes{"POST /payments": charge, "POST /transfers": transfer}, options,
					func(ctx context.Context) (*idemhttp.Response, error) {
						n++
						return r.handler(ctx)
					})
				first, err := serve(t.Context(), post(r.send))
				require.NoError(t, err)
				r.first.check(t, first)
				second, err := serve(t.Context(), post(r.again))
				require.NoError(t, err)
				r.second.check(t, second)
				require.Equal(t, r.runs, n, "executions")
				if r.second.replay {
					require.Equal(t, noon.Add(24*time.Hour).Format(http.TimeFormat), second.Headers[idemhttp.HeaderExpires])
					delete(second.Headers, idemhttp.HeaderReplayed)
					delete(second.Headers, idemhttp.HeaderExpires)
					require.Equal(t, first, second)
				}
			})
		}
	}
}

func (w want) check(t *testing.T, got *idemhttp.Response) {
	t.Helper()
	require.Equal(t, w.status, got.Status, "%s", got.Body)
	require.Equal(t, w.replay, got.Headers[idemhttp.HeaderReplayed] == "true")
	if w.code == "" {
		require.Equal(t, w.body, string(got.Body))
		return
	}
	var p struct {
		Code   idemhttp.Code
		Status int
	}
	require.NoError(t, json.Unmarshal(got.Body, &p))
	require.Equal(t, w.code, p.Code)
	require.Equal(t, w.status, p.Status)
}

// Two identical requests at the same moment: one execution.
func TestTwinsAtOnce(t *testing.T) {
	for name, open := range fronts {
		t.Run(name, func(t *testing.T) {
			started, release := make(chan struct{}), make(chan struct{})
			serve := open(newEngine(t, memory()), idemhttp.AnyRoute(charge), options, func(context.Context) (*idemhttp.Response, error) {
				close(started) // a second execution panics
				<-release
				return &idemhttp.Response{Status: 201, Body: []byte("made")}, nil
			})
			var wg sync.WaitGroup
			wg.Go(func() {
				res, err := serve(t.Context(), post())
				if err != nil || res.Status != 201 {
					t.Errorf("the first got %v %v", res, err)
				}
			})
			<-started
			res, err := serve(t.Context(), post())
			require.NoError(t, err)
			want{status: 409, code: idemhttp.CodeInProgress}.check(t, res)
			require.Regexp(t, "^[1-5]$", res.Headers["Retry-After"])
			close(release)
			wg.Wait()
			res, err = serve(t.Context(), post())
			require.NoError(t, err)
			want{status: 201, body: "made", replay: true}.check(t, res)
		})
	}
}

// Errors and panics of the handler pass through every front as they are.
func TestFaultsOfTheHandlerPassThrough(t *testing.T) {
	for name, open := range fronts {
		t.Run(name, func(t *testing.T) {
			own := errors.New("own")
			serve := open(newEngine(t, memory()), idemhttp.AnyRoute(charge), options, func(context.Context) (*idemhttp.Response, error) { return nil, own })
			_, err := serve(t.Context(), post())
			require.True(t, err == own)

			serve = open(newEngine(t, memory()), idemhttp.AnyRoute(charge), options, func(context.Context) (*idemhttp.Response, error) { panic("boom") })
			require.PanicsWithValue(t, "boom", func() { _, _ = serve(t.Context(), post()) })
			res, err := serve(t.Context(), post())
			require.NoError(t, err)
			want{status: 409, code: idemhttp.CodeOutcomeUnknown}.check(t, res)
		})
	}
}

// A replay is the first response, byte for byte, in every front.
func TestReplayIsFaithful(t *testing.T) {
	every := make([]byte, 0, 128)
	for i := range 128 {
		every = append(every, byte(i))
	}
	for name, open := range fronts {
		for what, given := range map[string]*idemhttp.Response{
			"text":   {Status: 200, Headers: map[string]string{"content-TYPE": "text/plain", "X-Html": "<&>"}, Body: every},
			"base64": {Status: 200, Base64: true, Body: []byte("AAEC/w==")},
			"multi":  {Status: 302, MultiHeaders: map[string][]string{"Vary": {"a", "b"}}, Headers: map[string]string{"Location": "/a"}, Body: []byte{}},
			"empty":  {Status: 204, Body: []byte{}},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				serve := open(newEngine(t, memory()), idemhttp.AnyRoute(charge), options, func(context.Context) (*idemhttp.Response, error) {
					c := *given
					c.Headers = maps.Clone(given.Headers)
					c.Cookies = []string{"session=secret"}
					return &c, nil
				})
				live, err := serve(t.Context(), post())
				require.NoError(t, err)
				require.Equal(t, []string{"session=secret"}, live.Cookies)
				require.Equal(t, given.Headers, live.Headers)
				require.Equal(t, given.MultiHeaders, live.MultiHeaders)
				again, err := serve(t.Context(), post())
				require.NoError(t, err)
				require.Nil(t, again.Cookies)
				for k, v := range given.Headers {
					require.Equal(t, v, again.Headers[k])
				}
				require.Equal(t, live.MultiHeaders, again.MultiHeaders)
				require.True(t, bytes.Equal(given.Body, again.Body))
				require.Equal(t, live.Base64, again.Base64)
				require.Equal(t, live.Status, again.Status)
			})
		}
	}
}
