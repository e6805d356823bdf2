package idemlambda

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

func post(change ...func(*request)) request {
	r := request{
		method: "POST", path: "/payments", tenant: "blue", body: `{"amount":4999,"currency":"EUR"}`,
		header: map[string]string{"Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9324",
			"Content-Type": "application/json"},
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

// want is an answer: the code of a refusal, or the handler's body.
type want struct {
	status int
	code   idemhttp.Code
	body   string
	replay bool
}

// row is a line of the contract: a request sent twice, or something else the second time. The
// zero values are a handler that makes something, and the request of post.
type row struct {
	store         idem.Store
	status        int
	body          string
	send, again   func(*request)
	first, second want
	runs          int
}

// What each adapter has to carry to the contract and back. All rows, in both profiles, run over
// real gateways in local/proof/contract.
func rows() map[string]row {
	ok, again := want{status: 201, body: "made"}, want{status: 201, body: "made", replay: true}
	refused := func(status int, code idemhttp.Code, send func(*request)) row {
		return row{send: send, first: want{status: status, code: code}, second: want{status: status, code: code}}
	}
	down := func(status int, code idemhttp.Code, store idem.Store) row {
		r := refused(status, code, nil)
		r.store = store
		return r
	}
	large := strings.Repeat("x", 100)
	return map[string]row{
		"replayed": {first: ok, second: again, runs: 1},
		"no content": {status: 204, body: "-", first: want{status: 204},
			second: want{status: 204, replay: true}, runs: 1},
		"unknown": {status: 500, first: want{status: 500, body: "made"},
			second: want{status: 409, code: idemhttp.CodeOutcomeUnknown}, runs: 1},
		"undeclared":  refused(500, idemhttp.CodeUndeclared, func(r *request) { r.path = "/transfers" }),
		"unprotected": {send: func(r *request) { r.path, r.tenant = "/refunds", "" }, first: ok, second: ok, runs: 2},
		"unprotected, no key": {send: func(r *request) { r.path, r.header = "/refunds", nil }, status: 500,
			first: want{status: 500, body: "made"}, second: want{status: 500, body: "made"}, runs: 2},
		"no tenant": refused(403, idemhttp.CodeTenantMissing, func(r *request) { r.tenant = "" }),
		"no key":    refused(400, idemhttp.CodeKeyMissing, header("Idempotency-Key", "")),
		"repeated key": refused(400, idemhttp.CodeKeyInvalid,
			header("Idempotency-Key", strings.Repeat("k", 16)+","+strings.Repeat("k", 16))),
		"ambiguous body": refused(400, idemhttp.CodeNotCanonical, func(r *request) { r.body = `{"a":1,"a":2}` }),
		"another body": {again: func(r *request) { r.body = `{"amount":1}` }, first: ok,
			second: want{status: 422, code: idemhttp.CodeKeyReused}, runs: 1},
		"another type": {again: header("Content-Type", "text/plain"), first: ok,
			second: want{status: 422, code: idemhttp.CodeKeyReused}, runs: 1},
		"same meaning": {again: func(r *request) {
			r.body = `{"currency": "EUR", "amount": 4.999e3}`
			r.header = map[string]string{"IDEMPOTENCY-KEY": `"` + r.header["Idempotency-Key"] + `"`,
				"content-type": "application/json"}
		}, first: ok, second: again, runs: 1},
		"another tenant": {again: func(r *request) { r.tenant = "green" }, first: ok, second: ok, runs: 2},
		"another method": {send: func(r *request) { r.method = "GET" }, first: ok, second: ok, runs: 2},
		"too large to keep": {store: memstore.Options{MaxResult: 64}.New(), body: large,
			first:  want{status: 201, body: large},
			second: want{status: 409, code: idemhttp.CodeOutcomeUnavailable}, runs: 1},
		"store down": down(503, idemhttp.CodeStoreUnavailable, unreachable()),
		"accepted":   down(202, idemhttp.CodeAccepted, occupied{memory(), idem.Record{State: idem.Pending}}),
		"in flight": down(409, idemhttp.CodeInProgress,
			occupied{memory(), idem.Record{State: idem.InProgress, LeaseUntil: noon.Add(time.Minute)}}),
	}
}

func TestContract(t *testing.T) {
	for name, d := range entryPoints {
		for what, r := range rows() {
			t.Run(name+"/"+what, func(t *testing.T) { r.test(t, d) })
		}
	}
}

func (r row) test(t *testing.T, d entryPoint) {
	if r.store == nil {
		r.store = memory()
	}
	n, given := 0, answering(cmp.Or(r.status, 201), strings.TrimPrefix(cmp.Or(r.body, "made"), "-"))
	routes := idemhttp.Routes{"POST /payments": charge, "POST /refunds": idemhttp.Unprotected}
	serve := d.serve(newEngine(t, r.store), routes,
		func(ctx context.Context) (*idemhttp.Response, error) {
			n++
			return given(ctx)
		})
	send := func(changes ...func(*request)) *idemhttp.Response {
		sent := post()
		for _, change := range changes {
			if change != nil {
				change(&sent)
			}
		}
		res, err := serve(t.Context(), sent)
		require.NoError(t, err)
		return res
	}
	first := send(r.send)
	r.first.check(t, first)
	second := send(r.send, r.again)
	r.second.check(t, second)
	require.Equal(t, r.runs, n, "executions")
	if r.second.replay {
		h := wire(second)
		require.Equal(t, noon.Add(24*time.Hour).Format(http.TimeFormat), h["idempotency-expires"])
		require.Equal(t, noon.Format(http.TimeFormat), h["idempotency-original-date"])
		require.Equal(t, unmarked(wire(first)), unmarked(h))
		require.Equal(t, first.Base64, second.Base64)
	}
}

// answering has a header and a body of that text.
func answering(status int, body string) idemhttp.Next {
	return func(context.Context) (*idemhttp.Response, error) {
		return &idemhttp.Response{Status: status, Body: []byte(body), Headers: map[string]string{"x-own": body}}, nil
	}
}

// unmarked takes off the marks of a replay, and what a replay never has.
func unmarked(header map[string]string) map[string]string {
	for _, name := range []string{"idempotency-replayed", "idempotency-expires",
		"idempotency-original-date", "set-cookie"} {
		delete(header, name)
	}
	return header
}

func (w want) check(t *testing.T, got *idemhttp.Response) {
	t.Helper()
	require.Equal(t, w.status, got.Status, "%s", got.Body)
	header := wire(got)
	_, marked := header["idempotency-replayed"]
	require.Equal(t, w.replay, marked)
	if w.code == "" {
		require.Equal(t, w.body, string(got.Body))
		return
	}
	var p idemhttp.Problem
	require.NoError(t, json.Unmarshal(got.Body, &p))
	require.Equal(t, idemhttp.Problem{Type: p.Type, Title: p.Title, Detail: p.Detail, RecordedStatus: p.RecordedStatus,
		Status: w.status, Code: w.code, Retryable: header["retry-after"] != ""}, p)
	require.Equal(t, "no-store", header["cache-control"])
	if w.status >= 400 {
		require.Equal(t, idemhttp.ProblemMediaType, header["content-type"])
	}
}

// Two tenants, and two principals where keys are bound to them: the same key and
// body are two requests, and neither sees anything of the other's.
func TestStrangersNeverShareARecord(t *testing.T) {
	for name, d := range entryPoints {
		for who, change := range map[string]func(*request, string){
			"tenants":    func(r *request, name string) { r.tenant = name },
			"principals": func(r *request, name string) { r.principal = name },
		} {
			t.Run(name+"/"+who, func(t *testing.T) {
				n := 0
				next := func(context.Context) (*idemhttp.Response, error) {
					n++
					return &idemhttp.Response{Status: 201, Body: fmt.Appendf(nil, "secret of %d", n)}, nil
				}
				serve := d.serve(newEngine(t, memory()), idemhttp.AnyRoute(charge), next, d.bindPrincipal)
				send := func(who string, more ...func(*request)) *idemhttp.Response {
					more = append(more, func(r *request) {
						r.principal = "anna"
						change(r, who)
					})
					res, err := serve(t.Context(), post(more...))
					require.NoError(t, err)
					return res
				}
				for i, who := range []string{"one", "two"} {
					res := send(who)
					want{status: 201, body: fmt.Sprintf("secret of %d", i+1)}.check(t, res)
				}
				require.Equal(t, 2, n)
				for i, who := range []string{"one", "two"} {
					want{status: 201, body: fmt.Sprintf("secret of %d", i+1), replay: true}.check(t, send(who))
				}
				// Reuse is reported to its owner alone.
				other := func(r *request) { r.body = `{"amount":1}` }
				want{status: 422, code: idemhttp.CodeKeyReused}.check(t, send("one", other))
				want{status: 201, body: "secret of 3"}.check(t, send("three", other))
			})
		}
	}
}

// Behind every gateway: accepted, followed, run by a worker, and shown to its tenant alone.
func TestAcceptedWorkIsFollowedBehindEveryGateway(t *testing.T) {
	statement := idem.Operation{Name: "statement"}
	for name, entry := range entryPoints {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, memory())
			var handed []string
			ask := entry.serve(engine, idemhttp.Routes{"POST /statements": statement},
				func(context.Context) (*idemhttp.Response, error) {
					panic("the handler of accepted work ran")
				}, func(o *idemhttp.Options) {
					o.Later = idemhttp.LaterRoutes{"POST /statements": {Status: "/statements/{id}",
						Enqueue: func(_ context.Context, id string) error {
							handed = append(handed, id)
							return nil
						}}}
				})
			send := func(r request) *idemhttp.Response { return ask.must(t, r) }
			accept := func(key string) (id string) {
				r := post(header("Idempotency-Key", key), func(r *request) { r.path = "/statements" })
				first := send(r)
				require.Equal(t, 202, first.Status, string(first.Body))
				at := only(t, first, "Location")
				id, ok := strings.CutPrefix(at, "statements/")
				require.True(t, ok, at)
				require.Equal(t, "1", only(t, first, "Retry-After"))
				require.Equal(t, first.Body, send(r).Body)
				return id
			}
			follow := func(method, id, tenant string) *idemhttp.Response { return ask.follow(t, method, id, tenant) }
			work := func(end error) {
				worker := SQSWorker(engine, statement, nil, func(_ context.Context, in map[string]any) (int, error) {
					require.Equal(t, "EUR", in["currency"])
					return 3, end
				})
				res, err := worker(t.Context(),
					events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: handed[len(handed)-1]}}})
				require.NoError(t, err)
				require.Empty(t, res.BatchItemFailures, "a recorded failure is an outcome too")
			}

			done := accept("key-number-one-of-three")
			require.Len(t, handed, 1)
			var state idemhttp.LaterState
			waiting := follow("GET", done, "blue")
			require.Equal(t, 202, waiting.Status)
			require.NoError(t, json.Unmarshal(waiting.Body, &state))
			require.Equal(t, idemhttp.LaterState{State: idem.Pending, ID: done}, state)
			work(nil)
			ended := follow("GET", done, "blue")
			require.Equal(t, 200, ended.Status)
			require.Equal(t, "3", string(ended.Body))
			head := follow("HEAD", done, "blue")
			require.Equal(t, 200, head.Status)
			require.Empty(t, head.Body)

			failed := accept("key-number-two-of-three")
			work(idem.Permanent(errors.New("no such account")))
			require.Equal(t, 500, follow("GET", failed, "blue").Status)

			cancelled := accept("key-number-three-of-three")
			require.Equal(t, 409, follow("DELETE", done, "blue").Status)
			none := follow("GET", strings.Repeat("A", 64), "blue")
			require.Equal(t, 404, none.Status)
			for _, r := range []*idemhttp.Response{follow("DELETE", cancelled, "green"), follow("GET", cancelled, "green"),
				follow("GET", "june", "blue")} {
				require.Equal(t, none, r)
			}
			require.Equal(t, 204, follow("DELETE", cancelled, "blue").Status)
			require.Equal(t, 409, follow("GET", cancelled, "blue").Status)
		})
	}
}

func (c client) must(t *testing.T, r request) *idemhttp.Response {
	t.Helper()
	res, err := c(t.Context(), r)
	require.NoError(t, err)
	return res
}

// follow asks for the status of a statement.
func (c client) follow(t *testing.T, method, id, tenant string) *idemhttp.Response {
	t.Helper()
	return c.must(t, request{method: method, path: "/statements/" + id, route: "/statements/{id}",
		header: map[string]string{}, tenant: tenant})
}

// only is the value of a header, in whichever map the gateway has it.
func only(t *testing.T, res *idemhttp.Response, name string) string {
	t.Helper()
	v := spread(res)[name]
	require.Len(t, v, 1, name)
	return v[0]
}
