package idemlambda

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	"github.com/idem-go/idempotency/idem/testenv/contract/contracttest"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var (
	charge   = idem.Operation{Name: "charge", Values: idem.KeepValues}
	transfer = idem.Operation{Name: "transfer", Repeat: idem.Repeatable}
)

// engineAt uses the clock, or the real one if it is nil.
func engineAt(t testing.TB, store idem.Store, clock *time.Time) *idem.Engine {
	t.Helper()
	o := &idem.Options{}
	if clock != nil {
		o.Now = func() time.Time { return *clock }
	}
	e, err := idem.New(store, o)
	require.NoError(t, err)
	return e
}

func newEngine(t testing.TB, store idem.Store) *idem.Engine { return engineAt(t, store, &noon) }

func realTime(t testing.TB, store idem.Store) *idem.Engine { return engineAt(t, store, nil) }

func memory() *memstore.Store { return memstore.New() }

// broken is a store whose methods have a fault.
func broken(store idem.Store, fault idemtest.Fault, methods ...idemtest.Method) *idemtest.Faults {
	f := idemtest.NewFaults(store)
	f.Always(fault, methods...)
	return f
}

// unreachable is a store that takes no claims.
func unreachable() idem.Store { return broken(memory(), idemtest.Deny, idemtest.Acquire) }

// damaged is a store whose records cannot be read.
func damaged() idem.Store {
	return broken(memory(), idemtest.Unreadable, idemtest.Acquire, idemtest.Get)
}

// dying is a store to which a process writes no end.
func dying(store idem.Store) idem.Store { return broken(store, idemtest.Deny, idemtest.Finish) }

// occupied is a store in which a record stands in every claim's way.
type occupied struct {
	idem.Store
	record idem.Record
}

func (s occupied) Acquire(_ context.Context, _ time.Time, c protocol.Claim) error {
	rec := s.record
	rec.ID, rec.Fingerprint = c.Record.ID, c.Record.Fingerprint
	return &protocol.ConflictError{Existing: &rec}
}

// golden compares with a file of testdata, or writes it with -update.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	got = append(got, '\n')
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// request is what a client sends, before any gateway has seen it.
type request struct {
	contract.Request
	principal string
	// route is the template that the gateway has matched, if it is not the path.
	route string
}

func post(changes ...contract.Change) request {
	return request{Request: contract.NewRequest("8e03978e-40d5-43e8-bc93-6894a57f9324").With(changes...)}
}

func (r request) raw() (path, query string) {
	path, query, _ = strings.Cut(r.Path, "?")
	return path, query
}

// matched is the template, and its parameters, which is only the table's.
func (r request) matched() (template string, parameters map[string]string) {
	path, _ := r.raw()
	if id, ok := strings.CutPrefix(path, "/payments/"); ok {
		return contract.RefundPath, map[string]string{"id": strings.TrimSuffix(id, "/refunds")}
	}
	return cmp.Or(r.route, path), nil
}

// body is what the event has: Base64 if it is no text.
func (r request) body() (body string, encoded bool) {
	if utf8.ValidString(r.Body) {
		return r.Body, false
	}
	return base64.StdEncoding.EncodeToString([]byte(r.Body)), true
}

// joinedHeader has one line for each header, with its name in lower case.
func (r request) joinedHeader() map[string]string {
	out := map[string]string{}
	for name, values := range r.Header {
		out[strings.ToLower(name)] = strings.Join(values, ",")
	}
	return out
}

func (r request) claims() map[string]string {
	claims := map[string]string{"tenant": r.Tenant, "sub": r.principal}
	maps.DeleteFunc(claims, func(_, value string) bool { return value == "" })
	return claims
}

// client sends a request through a gateway and returns the answer.
type client func(context.Context, request) (contracttest.Reply, error)

func (c client) must(t *testing.T, r request) contracttest.Reply {
	t.Helper()
	res, err := c(t.Context(), r)
	require.NoError(t, err)
	return res
}

// replyOf is what a client sees of a response.
func replyOf(t testing.TB, res *idemhttp.Response) contracttest.Reply {
	t.Helper()
	header := http.Header{"Set-Cookie": res.Cookies}
	for name, values := range spread(res) {
		header[http.CanonicalHeaderKey(name)] = values
	}
	body := res.Body
	if res.Base64 {
		var err error
		body, err = base64.StdEncoding.DecodeString(string(body))
		require.NoError(t, err)
	}
	return contracttest.Reply{Status: res.Status, Header: header, Body: string(body)}
}

// adapter is one of this package's functions for a gateway, such as HTTPAPI.
type adapter[E, R any] = func(*idem.Engine, idemhttp.Routes, idemhttp.TenantFunc, *idemhttp.Options,
	func(context.Context, E) (R, error)) func(context.Context, E) (R, error)

// entryPoint is a gateway; it makes its own form of a request.
type entryPoint struct {
	// tenant and principal are where the gateway's identities are.
	tenant, principal idemhttp.TenantFunc
	open              func(testing.TB, *idem.Engine, idemhttp.Routes, *idemhttp.Options, idemhttp.Next) client
}

var entryPoints = map[string]entryPoint{
	"HTTPAPI": behind(idemhttp.Claim("tenant"), idemhttp.Claim("sub"), HTTPAPI, eventV2, toV2, fromV2),
	"RESTAPI": behind(idemhttp.AuthorizerValue("tenant"), idemhttp.AuthorizerValue("sub"), RESTAPI, eventV1,
		toV1, fromV1),
	"FunctionURL":     behind(idemhttp.IAMAccount, idemhttp.IAMUser, FunctionURL, eventURL, toURL, fromURL),
	"ALB":             behindALB(false),
	"ALB multi-value": behindALB(true),
}

// behind makes an entry point of an adapter, the event of a request, and the two forms of a response.
func behind[E, R any](tenant, principal idemhttp.TenantFunc, wrap adapter[E, R], event func(request) E,
	to func(*E, *R, *idemhttp.Response) R, from func(*R) *idemhttp.Response) entryPoint {
	return entryPoint{tenant, principal, func(t testing.TB, e *idem.Engine, routes idemhttp.Routes, o *idemhttp.Options,
		next idemhttp.Next) client {
		h := wrap(e, routes, tenant, o, func(ctx context.Context, _ E) (out R, err error) {
			res, err := next(ctx)
			if res == nil {
				return out, err
			}
			return to(new(E), &out, res), err
		})
		return func(ctx context.Context, r request) (contracttest.Reply, error) {
			res, err := h(ctx, event(r))
			if err != nil {
				return contracttest.Reply{Failed: true}, err
			}
			return replyOf(t, from(&res)), nil
		}
	}}
}

func eventV2(r request) (e events.APIGatewayV2HTTPRequest) {
	e.Version, e.Headers = "2.0", r.joinedHeader()
	e.Body, e.IsBase64Encoded = r.body()
	e.RawPath, e.RawQueryString = r.raw()
	e.RouteKey, e.PathParameters = r.matched()
	e.RouteKey = r.Method + " " + e.RouteKey
	e.RequestContext.HTTP.Method = r.Method
	e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: r.claims()},
	}
	return e
}

func eventV1(r request) (e events.APIGatewayProxyRequest) {
	e.HTTPMethod, e.MultiValueHeaders = r.Method, r.Header
	e.Body, e.IsBase64Encoded = r.body()
	path, query := r.raw()
	e.Path = path
	e.MultiValueQueryStringParameters, _ = url.ParseQuery(query)
	e.Resource, e.PathParameters = r.matched()
	e.RequestContext.Authorizer = map[string]any{}
	for name, value := range r.claims() {
		e.RequestContext.Authorizer[name] = value
	}
	return e
}

func eventURL(r request) (e events.LambdaFunctionURLRequest) {
	e.Version, e.Headers = "2.0", r.joinedHeader()
	e.Body, e.IsBase64Encoded = r.body()
	e.RawPath, e.RawQueryString = r.raw()
	e.RequestContext.HTTP.Method = r.Method
	e.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
		IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{AccountID: r.Tenant, UserID: r.principal},
	}
	return e
}

// behindALB has the identities in headers, and a handler that knows nothing of the target group's mode.
func behindALB(multiValue bool) entryPoint {
	from := func(name string) idemhttp.TenantFunc {
		return func(_ context.Context, r *idemhttp.Request) (string, error) {
			e := r.Source.(*events.ALBTargetGroupRequest)
			if multiValue {
				return strings.Join(e.MultiValueHeaders[name], ""), nil
			}
			return e.Headers[name], nil
		}
	}
	event := func(r request) (e events.ALBTargetGroupRequest) {
		e.HTTPMethod = r.Method
		e.Body, e.IsBase64Encoded = r.body()
		path, query := r.raw()
		e.Path = path
		r.Request = r.With(contract.Header("X-Tenant", r.Tenant), contract.Header("X-Principal", r.principal))
		if !multiValue {
			e.Headers, e.QueryStringParameters = r.joinedHeader(), maps.Collect(pairs(query))
			return e
		}
		e.MultiValueHeaders, e.MultiValueQueryStringParameters = map[string][]string{}, map[string][]string{}
		for name, values := range r.Header {
			e.MultiValueHeaders[strings.ToLower(name)] = values
		}
		for name, value := range pairs(query) {
			e.MultiValueQueryStringParameters[name] = append(e.MultiValueQueryStringParameters[name], value)
		}
		return e
	}
	to := func(_ *events.ALBTargetGroupRequest, _ *events.ALBTargetGroupResponse,
		res *idemhttp.Response) events.ALBTargetGroupResponse {
		return events.ALBTargetGroupResponse{
			StatusCode: res.Status, Headers: res.Headers, MultiValueHeaders: res.MultiHeaders,
			Body: string(res.Body), IsBase64Encoded: res.Base64,
		}
	}
	return behind(from("x-tenant"), from("x-principal"), ALB, event, to, fromALB)
}

// pairs are the parameters of a query as the client has spelled them.
func pairs(query string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for pair := range strings.SplitSeq(query, "&") {
			if name, value, ok := strings.Cut(pair, "="); ok && !yield(name, value) {
				return
			}
		}
	}
}
