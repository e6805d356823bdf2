package idemlambda

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var (
	charge   = idem.Operation{Name: "charge", Values: idem.KeepValues}
	transfer = idem.Operation{Name: "transfer", Repeat: idem.Repeatable}
)

// engineAt goes by the clock, or by the real one.
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
	method, path      string
	header            map[string]string
	body              string
	tenant, principal string
	// route is the template that the gateway has matched, if it is not the path.
	route string
}

func (r request) template() string { return cmp.Or(r.route, r.path) }

// client sends a request through a gateway and returns the answer.
type client func(context.Context, request) (*idemhttp.Response, error)

// adapter is one of this package's functions for a gateway, such as HTTPAPI.
type adapter[E, R any] = func(*idem.Engine, idemhttp.Routes, idemhttp.TenantFunc, *idemhttp.Options,
	func(context.Context, E) (R, error)) func(context.Context, E) (R, error)

// entryPoint is a gateway; it makes its own form of a request.
type entryPoint struct {
	// tenant and principal are where the gateway's identities are.
	tenant, principal idemhttp.TenantFunc
	open              func(*idem.Engine, idemhttp.Routes, idemhttp.TenantFunc, *idemhttp.Options, idemhttp.Next) client
}

// serve makes a client of the entry point with its tenant and the options.
func (d entryPoint) serve(e *idem.Engine, routes idemhttp.Routes, next idemhttp.Next,
	change ...func(*idemhttp.Options)) client {
	o := &idemhttp.Options{}
	for _, f := range change {
		f(o)
	}
	return d.open(e, routes, d.tenant, o, next)
}

// bindPrincipal makes keys those of a principal.
func (d entryPoint) bindPrincipal(o *idemhttp.Options) { o.Principal = d.principal }

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
	return entryPoint{tenant, principal, func(e *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc,
		o *idemhttp.Options, next idemhttp.Next) client {
		h := wrap(e, routes, tenant, o, func(ctx context.Context, _ E) (out R, err error) {
			res, err := next(ctx)
			if res == nil {
				return out, err
			}
			return to(new(E), &out, res), err
		})
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			res, err := h(ctx, event(r))
			if err != nil {
				return nil, err
			}
			return from(&res), nil
		}
	}}
}

func eventV2(r request) events.APIGatewayV2HTTPRequest {
	e := events.APIGatewayV2HTTPRequest{Version: "2.0", RouteKey: r.method + " " + r.template(), RawPath: r.path,
		Headers: lower(r.header), Body: r.body}
	e.RequestContext.HTTP.Method = r.method
	e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: r.claims()},
	}
	return e
}

func eventV1(r request) events.APIGatewayProxyRequest {
	e := events.APIGatewayProxyRequest{Resource: r.template(), Path: r.path, HTTPMethod: r.method, Headers: r.header,
		MultiValueHeaders: lines(r.header), Body: r.body}
	e.RequestContext.Authorizer = map[string]any{}
	for k, v := range r.claims() {
		e.RequestContext.Authorizer[k] = v
	}
	return e
}

func eventURL(r request) events.LambdaFunctionURLRequest {
	e := events.LambdaFunctionURLRequest{Version: "2.0", RawPath: r.path, Headers: lower(r.header), Body: r.body}
	e.RequestContext.HTTP.Method = r.method
	e.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
		IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{AccountID: r.tenant, UserID: r.principal},
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
	event := func(r request) events.ALBTargetGroupRequest {
		e := events.ALBTargetGroupRequest{HTTPMethod: r.method, Path: r.path, Body: r.body}
		headers := lower(r.header)
		headers["x-tenant"], headers["x-principal"] = r.tenant, r.principal
		if multiValue {
			e.MultiValueHeaders = lines(headers)
		} else {
			e.Headers = headers
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

// wire is what a client sees of the response's headers: names in lower case, all
// values in one line.
func wire(res *idemhttp.Response) map[string]string {
	out := map[string]string{}
	for k, v := range res.Headers {
		out[strings.ToLower(k)] = v
	}
	for k, vs := range res.MultiHeaders {
		out[strings.ToLower(k)] = strings.Join(vs, ", ")
	}
	return out
}

func (r request) claims() map[string]string {
	claims := map[string]string{}
	if r.tenant != "" {
		claims["tenant"] = r.tenant
	}
	if r.principal != "" {
		claims["sub"] = r.principal
	}
	return claims
}

func lower(header map[string]string) map[string]string {
	out := make(map[string]string, len(header))
	for k, v := range header {
		out[strings.ToLower(k)] = v
	}
	return out
}
