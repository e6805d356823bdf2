package idemhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/stretchr/testify/require"
)

var statement = idem.Operation{Name: "statement"}

type month struct{ Month string }

type pages struct{ Pages int }

// laterService accepts statements over HTTP, and has a worker.
type laterService struct {
	*testing.T
	store    idem.Store
	engine   *idem.Engine
	contract *Contract
	server   *httptest.Server
	passed   atomic.Int64 // since noon
	handed   []string
	at       string // the id of the status
	runs     int
}

func newLaterService(t *testing.T, store idem.Store, change ...func(*Later, *Options)) *laterService {
	b := &laterService{T: t, store: store}
	var err error
	b.engine, err = idem.New(store, &idem.Options{Now: b.now})
	require.NoError(t, err)
	o := &Options{}
	l := Later{Status: "/statements/{id}", Enqueue: func(_ context.Context, id string) error {
		b.handed = append(b.handed, id)
		return nil
	}}
	for _, f := range change {
		if f != nil {
			f(&l, o)
		}
	}
	o.Later = LaterRoutes{"POST /statements": l}
	b.contract, err = New(b.engine, Routes{"POST /statements": statement, "POST /payments": charge}, tenantHeader, o)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /own", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") })
	mux.HandleFunc("POST /", func(http.ResponseWriter, *http.Request) { panic("the handler of accepted work ran") })
	b.server = httptest.NewServer(b.contract.Middleware(mux, nil))
	t.Cleanup(b.server.Close)
	return b
}

// tenantHeader is a tenant function of tests.
func tenantHeader(_ context.Context, r *Request) (string, error) {
	v := r.header("Tenant")
	if len(v) == 0 {
		return "", ErrTenantMissing
	}
	return v[0], nil
}

func (b *laterService) now() time.Time { return noon.Add(time.Duration(b.passed.Load())) }

func (b *laterService) pass(d time.Duration) { b.passed.Add(int64(d)) }

// heard is an answer as it was on the wire, without the server's date.
type heard struct {
	status int
	header http.Header
	body   string
}

func (b *laterService) send(method, url, tenant, body string) heard {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, url, strings.NewReader(body))
	require.NoError(b, err)
	req.Header.Set("Tenant", tenant)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", testKey)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(b, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(b, err)
	res.Header.Del("Date")
	if at, err := res.Location(); err == nil {
		res.Header.Set("Location", at.String())
	}
	return heard{res.StatusCode, res.Header, string(text)}
}

const june = `{"month":"june"}`

func (b *laterService) post(body string) heard {
	return b.send("POST", b.server.URL+"/statements", "blue", body)
}

// asked is a request for a statement without a server.
func asked(body string) *Request {
	return &Request{
		Method: "POST", Path: "/statements", Body: []byte(body),
		Header: map[string][]string{"content-type": {"application/json"}, "idempotency-key": {testKey}, "tenant": {"blue"}},
	}
}

// accepted is the URL of the status of a request that is accepted for sure.
func (b *laterService) accepted() string {
	b.Helper()
	res := b.post(june)
	require.Equal(b, 202, res.status, res.body)
	at := res.header.Get("Location")
	b.at = at[strings.LastIndexByte(at, '/')+1:]
	return at
}

// ask asks for the status without a server.
func (b *laterService) ask(method string) *Response {
	return serve(b, b.contract, &Request{
		Method: method, Route: "/statements/{id}", Path: "/statements/" + b.at,
		Header: map[string][]string{"tenant": {"blue"}},
	}, nil)
}

// sweep ends what no worker has come for in time.
func (b *laterService) sweep() {
	b.pass(later.DefaultStartWithin + time.Second)
	rc, err := reconcile.New(b.store.(reconcile.Store), &reconcile.Options{Now: b.now})
	require.NoError(b, err)
	s, err := reconcile.NewSweeper(rc, nil)
	require.NoError(b, err)
	_, err = s.Sweep(b.Context())
	require.NoError(b, err)
}

func (b *laterService) work(end error) error {
	_, err := later.Work(b.Context(), b.engine, statement, statement.Key("blue", testKey).ID(),
		func(_ context.Context, in month) (pages, error) {
			b.runs++
			require.Equal(b, month{"june"}, in)
			return pages{3}, end
		})
	return err
}

func (b *laterService) problem(r heard, status int, code Code) {
	b.Helper()
	require.Equal(b, status, r.status, r.body)
	require.Equal(b, ProblemMediaType, r.header.Get("Content-Type"))
	var p Problem
	require.NoError(b, json.Unmarshal([]byte(r.body), &p))
	require.Equal(b, code, p.Code)
	require.Equal(b, status, p.Status)
}

// state is the state in a 202.
func (b *laterService) state(r heard) LaterState {
	b.Helper()
	require.Equal(b, 202, r.status, r.body)
	require.Equal(b, "application/json", r.header.Get("Content-Type"))
	require.Equal(b, "no-store", r.header.Get("Cache-Control"))
	require.NotEmpty(b, r.header.Get("Retry-After"))
	var s LaterState
	require.NoError(b, json.Unmarshal([]byte(r.body), &s))
	return s
}

// Answers about accepted work have the service's headers as refusals have, and nothing else of what it changes.
func TestAcceptedWorkIsFollowedToItsResult(t *testing.T) {
	b := newLaterService(t, memory(), func(_ *Later, o *Options) {
		o.OnRefusal = func(_ context.Context, _ *Request, f *Refusal) {
			if f.Headers = map[string]string{"X-Own": fmt.Sprint(f.Code, f.Status)}; f.Code == CodeAccepted {
				f.Status, f.Members = 400, map[string]any{"state": "spoofed"}
			}
		}
	})
	first := b.post(june)
	require.Equal(t, fmt.Sprint(CodeAccepted, 202), first.header.Get("X-Own"))
	at := first.header.Get("Location")
	id, ok := strings.CutPrefix(at, b.server.URL+"/statements/")
	require.True(t, ok, at)
	require.Equal(t, LaterState{idem.Pending, id}, b.state(first))
	require.NotContains(t, id, testKey)
	require.Equal(t, first, b.post(june), "the same request again")
	require.Equal(t, []string{statement.Key("blue", testKey).ID()}, b.handed, "once")
	b.problem(b.post(`{"month":"july"}`), 422, CodeKeyReused)

	require.Equal(t, LaterState{idem.Pending, id}, b.state(b.send("GET", at, "blue", "")))
	_, err := later.Work(t.Context(), b.engine, statement, b.handed[0], func(_ context.Context, in month) (pages, error) {
		require.Equal(t, LaterState{idem.InProgress, id}, b.state(b.send("GET", at, "blue", "")))
		require.Equal(t, LaterState{idem.InProgress, id}, b.state(b.post(june)))
		b.problem(b.send("DELETE", at, "blue", ""), 409, CodeBegun)
		return pages{3}, nil
	})
	require.NoError(t, err)

	done := b.send("GET", at, "blue", "")
	require.Equal(t, 200, done.status)
	require.Equal(t, `{"Pages":3}`, done.body)
	require.Equal(t, "application/json", done.header.Get("Content-Type"))
	require.NotEmpty(t, done.header.Get(HeaderExpires))
	require.Empty(t, done.header.Get(HeaderReplayed))
	head := b.send("HEAD", at, "blue", "")
	require.Equal(t, 200, head.status)
	require.Empty(t, head.body)
	again := b.post(june)
	require.Equal(t, 200, again.status)
	require.Equal(t, done.body, again.body)
	require.Equal(t, "true", again.header.Get(HeaderReplayed))
	require.Empty(t, again.header.Get("Location"))
	narrow := asked(june)
	narrow.Fits = func(*Response) bool { return false }
	require.Equal(t, CodeOutcomeUnavailable, problemIn(t, serve(t, b.contract, narrow, nil)).Code, "a gateway's limit")
	b.problem(b.post(`{"month":"july"}`), 422, CodeKeyReused)
	b.problem(b.send("DELETE", at, "blue", ""), 409, CodeBegun)
	require.Equal(t, "own", b.send("GET", b.server.URL+"/own", "blue", "").body,
		"what is not the contract's reaches its handler")
}

// What became of the work, as its status says, and as the request sent again says.
func TestOutcomesOfAcceptedWork(t *testing.T) {
	secret := errors.New("secret")
	works := func(end error) func(*laterService) {
		return func(b *laterService) { require.Equal(b, end != nil, b.work(end) != nil) }
	}
	for name, c := range map[string]struct {
		change func(*Later, *Options)
		store  idem.Store
		end    func(b *laterService)
		status int
		code   Code
		again  int // of the request, if it differs
	}{
		"failed":      {end: works(idem.Permanent(secret)), status: 500, code: CodeFailed},
		"unknown":     {end: works(secret), status: 409, code: CodeOutcomeUnknown},
		"not started": {end: (*laterService).sweep, status: 408, code: CodeNotStarted},
		"not kept": {store: memstore.Options{MaxResult: 16}.New(),
			end: func(b *laterService) { require.NoError(b, b.workLarge()) }, status: 409, code: CodeOutcomeUnavailable},
		"not run yet": {end: works(idem.NotExecuted(secret)), status: 202},
		"a problem of the service's own": {
			change: func(l *Later, _ *Options) {
				l.Failed = func(f idem.Failure) *Response {
					return &Response{Status: 402, Headers: map[string]string{"Content-Type": ProblemMediaType},
						Body: []byte(`{"code":"` + f.Message + `","status":402}`)}
				}
			},
			end: works(idem.Permanent(errors.New("no_funds"))), status: 402, code: "no_funds",
		},
		"an answer of the service's own": {
			change: func(l *Later, o *Options) {
				o.OnRefusal = func(_ context.Context, _ *Request, f *Refusal) {
					f.Headers = map[string]string{"Access-Control-Allow-Origin": "https://shop.example"}
				}
				l.Failed = func(idem.Failure) *Response {
					return &Response{Status: 404, Body: []byte("no such account"), Headers: map[string]string{
						"Cache-Control": "public", HeaderReplayed: "true", HeaderExpires: "Thu, 01 Jan 2099 00:00:00 GMT",
					}}
				}
			},
			end: func(b *laterService) {
				works(idem.Permanent(secret))(b)
				res := b.send("GET", b.server.URL+"/statements/"+b.at, "blue", "")
				require.Equal(b, "no-store", res.header.Get("Cache-Control"), "caches may keep a 404 (RFC 9110 15.1)")
				require.Equal(b, "https://shop.example", res.header.Get("Access-Control-Allow-Origin"))
				require.Empty(b, res.header.Get(HeaderReplayed), "a mark is the contract's alone")
				require.Equal(b, noon.Format(http.TimeFormat), res.header.Get(HeaderOriginalDate))
				require.NotContains(b, res.header.Get(HeaderExpires), "2099")
			},
			status: 404,
		},
		"a problem that panics": {
			change: func(l *Later, _ *Options) { l.Failed = func(idem.Failure) *Response { panic("secret") } },
			end:    works(idem.Permanent(secret)), status: 500, code: CodeFailed,
		},
		"a resource": {
			change: func(l *Later, _ *Options) {
				l.ResultLocation = func(result []byte) string { return "/archive/" + string(result[9:10]) }
			},
			end: works(nil), status: 303,
		},
		"no resource": {
			change: func(l *Later, _ *Options) { l.ResultLocation = func([]byte) string { return "not a\nlink" } },
			end:    works(nil), status: 200,
		},
		"expired": {end: func(b *laterService) { works(nil)(b); b.pass(48 * time.Hour) },
			status: 410, code: CodeExpired, again: 202},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLaterService(t, cmp.Or[idem.Store](c.store, memory()), c.change)
			at := b.accepted()
			c.end(b)
			status := b.send("GET", at, "blue", "")
			again := status
			if c.again == 0 {
				again = b.post(june)
			}
			for _, r := range []heard{status, again} {
				require.Equal(t, c.status, r.status, r.body)
				require.NotContains(t, r.body, "secret")
				if c.code != "" {
					b.problem(r, c.status, c.code)
				}
				if c.status == 303 {
					require.Equal(t, b.server.URL+"/archive/3", r.header.Get("Location"))
				}
				if c.status == 202 {
					require.Equal(t, idem.InProgress, b.state(r).State)
				}
			}
			require.Equal(t, status.body, again.body)
			b.problem(b.send("GET", at, "green", ""), 404, CodeStatusNotFound)
			require.Equal(t, status.status, b.send("HEAD", at, "blue", "").status)
			if c.again != 0 {
				require.Equal(t, c.again, b.post(june).status)
				b.problem(b.send("GET", at, "blue", ""), 404, CodeStatusNotFound)
			}
		})
	}
}

func (b *laterService) workLarge() error {
	_, err := later.Work(b.Context(), b.engine, statement, b.handed[0], func(context.Context, month) (string, error) {
		return strings.Repeat("x", 1000), nil
	})
	return err
}

// What could not be handed over is not accepted, and neither is what no worker could read.
func TestWhatIsNotAccepted(t *testing.T) {
	fails := errors.New("no queue")
	b := newLaterService(t, memstore.Options{MaxResult: 100}.New(), func(l *Later, _ *Options) {
		l.Enqueue = func(context.Context, string) error { return fails }
	})
	b.problem(b.post(`{"month":`), 400, CodeNotCanonical)
	b.problem(b.post(`{"month":"june","month":"july"}`), 400, CodeNotCanonical)
	plain := asked(june)
	plain.Header["content-type"] = []string{"text/plain"}
	require.Equal(t, 400, serve(t, b.contract, plain, nil).Status)
	require.Equal(t, 400, serve(t, b.contract, asked(""), nil).Status)
	_, err := b.contract.Serve(t.Context(), asked(june), nil)
	require.ErrorIs(t, err, fails)
	fails = nil
	b.problem(b.post(`{"month":"`+strings.Repeat("x", 100)+`"}`), 413, CodeRequestTooLarge)
	rec, err := b.store.Get(t.Context(), statement.Key("blue", testKey).ID())
	require.NoError(t, err)
	require.Nil(t, rec)
	b.accepted()
}

// The input may be less than the request, which is compared as a whole all the same.
func TestTheInputIsWhatTheServiceMakesOfTheRequest(t *testing.T) {
	fails := errors.New("no such month")
	made, refuses := "", error(nil)
	b := newLaterService(t, memory(), func(l *Later, _ *Options) {
		l.Input = func(_ context.Context, r *Request) ([]byte, error) {
			require.Contains(t, string(r.Body), "4111")
			return []byte(made), refuses
		}
	})
	ask := func(card string) (*Response, error) {
		return b.contract.Serve(t.Context(), asked(`{"month":"june","card":"`+card+`"}`), nil)
	}
	refuses = fails
	_, err := ask("4111")
	require.ErrorIs(t, err, fails)
	refuses = fmt.Errorf("no: %w", &fingerprint.NotCanonicalError{Reason: "no such month"})
	refused, err := ask("4111")
	require.NoError(t, err)
	require.Equal(t, 400, refused.Status)
	require.Contains(t, string(refused.Body), "no such month")
	made, refuses = "june", nil
	_, err = ask("4111")
	require.ErrorContains(t, err, "made no JSON")
	require.Empty(t, b.handed)
	made = june
	res, err := ask("4111")
	require.NoError(t, err)
	require.Equal(t, 202, res.Status)
	res, err = ask("4111-2")
	require.NoError(t, err)
	require.Equal(t, 422, res.Status)
	require.NoError(t, b.work(nil))
	require.Equal(t, 1, b.runs)
}

// What the worker could not decode is refused before it is accepted.
func TestABodyOfAnotherFormIsNotAccepted(t *testing.T) {
	b := newLaterService(t, memory(), func(l *Later, _ *Options) { l.Input = InputOf[month] })
	b.problem(b.post(`{"month":7}`), 400, CodeNotCanonical)
	b.problem(b.post(`[]`), 400, CodeNotCanonical)
	b.accepted()
	require.NoError(t, b.work(nil))
}

func TestMistakesInLater(t *testing.T) {
	routes := Routes{"POST /statements": statement, "POST /a/{rest...}": statement, "DELETE /payments/{id}": charge,
		"POST /shadow": {Name: "shadow", Shadow: true}}
	ok := Later{Status: "/statements/{id}"}
	for want, l := range map[string]LaterRoutes{
		"not declared":            {"POST /other": ok},
		"is in shadow":            {"POST /shadow": ok},
		"StartWithin is 1ns":      {"POST /statements": {Status: "/statements/{id}", StartWithin: 1}},
		`Status is ""`:            {"POST /statements": {}},
		`Status is "/statements"`: {"POST /statements": {Status: "/statements"}},
		`Status is "/s/{id...}"`:  {"POST /statements": {Status: "/s/{id...}"}},
		`Status is "/s/{id+}"`:    {"POST /statements": {Status: "/s/{id+}"}},
		`Status is "/{a}/{id}"`:   {"POST /statements": {Status: "/{a}/{id}"}},
		`Status is "s/{id}"`:      {"POST /statements": {Status: "s/{id}"}},
		`Status is "/s?/{id}"`:    {"POST /statements": {Status: "/s?/{id}"}},
		`"POST /a/{rest...}"`:     {"POST /a/{rest...}": {Status: "/b/{id}"}},
		`"DELETE /payments/{id}"`: {"POST /statements": {Status: "/payments/{id}"}},
	} {
		_, err := New(newEngine(t, memory()), routes, SingleTenant, &Options{Later: l, Methods: []string{"POST", "DELETE"}})
		require.ErrorAs(t, err, new(*idem.ConfigError), want)
		require.Contains(t, err.Error(), want)
	}
	_, err := New(newEngine(t, memory()), Routes{"POST /a": statement, "POST /b": statement}, SingleTenant,
		&Options{Later: LaterRoutes{"POST /a": ok, "POST /b": ok}})
	require.ErrorContains(t, err, "another route has the Status")
}
