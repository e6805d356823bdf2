package idemlambda

import (
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/stretchr/testify/require"
)

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

// entryPoint is a way to the contract; it makes its own form of a request.
type entryPoint struct {
	// tenant and principal are where the gateway's identities are.
	tenant, principal idemhttp.TenantFunc
	open              func(testing.TB, *idem.Engine, idemhttp.Routes, idemhttp.TenantFunc, *idemhttp.Options,
		idemhttp.Next) client
}

// serve makes a client of the entry point with its tenant and the options.
func (d entryPoint) serve(t testing.TB, e *idem.Engine, routes idemhttp.Routes, next idemhttp.Next,
	change ...func(*idemhttp.Options)) client {
	t.Helper()
	o := &idemhttp.Options{}
	for _, f := range change {
		f(o)
	}
	return d.open(t, e, routes, d.tenant, o, next)
}

// bindPrincipal makes keys those of a principal.
func (d entryPoint) bindPrincipal(o *idemhttp.Options) { o.Principal = d.principal }

var entryPoints = map[string]entryPoint{
	"neutral": {idemhttp.Claim("tenant"), idemhttp.Claim("sub"), func(t testing.TB, e *idem.Engine, routes idemhttp.Routes,
		tenant idemhttp.TenantFunc, o *idemhttp.Options, next idemhttp.Next) client {
		c, err := idemhttp.New(e, routes, tenant, o)
		require.NoError(t, err)
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			return c.Serve(ctx, &idemhttp.Request{
				Method: r.method, Route: r.template(), Path: r.path, Header: multi(r.header), Body: []byte(r.body),
				Identity: idemhttp.Identity{Claims: r.claims()},
			}, next)
		}
	}},
	"HTTPAPI": {idemhttp.Claim("tenant"), idemhttp.Claim("sub"), func(_ testing.TB, e *idem.Engine, routes idemhttp.Routes,
		tenant idemhttp.TenantFunc, o *idemhttp.Options, next idemhttp.Next) client {
		h := HTTPAPI(e, routes, tenant, o,
			func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				return give(toV2, next)(ctx)
			})
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			e := events.APIGatewayV2HTTPRequest{Version: "2.0", RouteKey: r.method + " " + r.template(), RawPath: r.path,
				Headers: lower(r.header), Body: r.body}
			e.RequestContext.HTTP.Method = r.method
			e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
				JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: r.claims()},
			}
			res, err := h(ctx, e)
			return see(fromV2, res, err)
		}
	}},
	"RESTAPI": {idemhttp.AuthorizerValue("tenant"), idemhttp.AuthorizerValue("sub"), func(_ testing.TB, e *idem.Engine,
		routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options, next idemhttp.Next) client {
		h := RESTAPI(e, routes, tenant, o,
			func(ctx context.Context, _ events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
				return give(toV1, next)(ctx)
			})
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			e := events.APIGatewayProxyRequest{Resource: r.template(), Path: r.path, HTTPMethod: r.method, Headers: r.header,
				MultiValueHeaders: multi(r.header), Body: r.body}
			e.RequestContext.Authorizer = map[string]any{}
			for k, v := range r.claims() {
				e.RequestContext.Authorizer[k] = v
			}
			res, err := h(ctx, e)
			return see(fromV1, res, err)
		}
	}},
	"FunctionURL": {idemhttp.IAMAccount, idemhttp.IAMUser, func(_ testing.TB, e *idem.Engine, routes idemhttp.Routes,
		tenant idemhttp.TenantFunc, o *idemhttp.Options, next idemhttp.Next) client {
		h := FunctionURL(e, routes, tenant, o,
			func(ctx context.Context, _ events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
				return give(toURL, next)(ctx)
			})
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			e := events.LambdaFunctionURLRequest{Version: "2.0", RawPath: r.path, Headers: lower(r.header), Body: r.body}
			e.RequestContext.HTTP.Method = r.method
			e.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
				IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{AccountID: r.tenant, UserID: r.principal},
			}
			res, err := h(ctx, e)
			return see(fromURL, res, err)
		}
	}},
	"ALB":                   behindALB(false),
	"ALB multi-value":       behindALB(true),
	"Middleware":            behindNetHTTP(false),
	"Middleware around mux": behindNetHTTP(true),
}

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
	return entryPoint{from("x-tenant"), from("x-principal"), func(_ testing.TB, e *idem.Engine, routes idemhttp.Routes,
		tenant idemhttp.TenantFunc, o *idemhttp.Options, next idemhttp.Next) client {
		h := ALB(e, routes, tenant, o,
			func(ctx context.Context, _ events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
				res, err := next(ctx)
				if res == nil {
					return events.ALBTargetGroupResponse{}, err
				}
				// As a handler gives it that knows nothing of the mode.
				return events.ALBTargetGroupResponse{
					StatusCode: res.Status, Headers: res.Headers, MultiValueHeaders: res.MultiHeaders,
					Body: string(res.Body), IsBase64Encoded: res.Base64,
				}, err
			})
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			e := events.ALBTargetGroupRequest{HTTPMethod: r.method, Path: r.path, Body: r.body}
			headers := lower(r.header)
			headers["x-tenant"], headers["x-principal"] = r.tenant, r.principal
			if multiValue {
				e.MultiValueHeaders = multi(headers)
			} else {
				e.Headers = headers
			}
			res, err := h(ctx, e)
			return see(fromALB, res, err)
		}
	}}
}

// behindNetHTTP is a real server with a real client.
func behindNetHTTP(around bool) entryPoint {
	from := func(name string) idemhttp.TenantFunc {
		return idemhttp.FromRequest(func(r *http.Request) (string, error) { return r.Header.Get(name), nil })
	}
	return entryPoint{from("X-Tenant"), from("X-Principal"), func(t testing.TB, e *idem.Engine, routes idemhttp.Routes,
		tenant idemhttp.TenantFunc, o *idemhttp.Options, next idemhttp.Next) client {
		c, err := idemhttp.New(e, routes, tenant, o)
		require.NoError(t, err)
		handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			res, err := next(r.Context())
			if err != nil {
				panic(err)
			}
			send(w, res)
		}))
		mux := http.NewServeMux()
		for _, path := range []string{"/payments", "/transfers", "/refunds", "/statements", "/statements/{id}",
			"/reports", "/reports/{id}"} {
			if around {
				mux.Handle(path, handler)
			} else {
				mux.Handle(path, c.Middleware(handler, nil))
			}
		}
		root := http.Handler(mux)
		if around {
			root = c.Middleware(mux, nil)
		}
		var test atomic.Pointer[context.Context]
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // on 127.0.0.1
			root.ServeHTTP(w, r.WithContext(within{r.Context(), *test.Load()}))
		}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs panics
		server.Start()
		t.Cleanup(server.Close)
		return func(ctx context.Context, r request) (*idemhttp.Response, error) {
			test.Store(&ctx)
			req, err := http.NewRequestWithContext(ctx, r.method, server.URL+r.path, strings.NewReader(r.body))
			if err != nil {
				return nil, err
			}
			for name, value := range r.header {
				req.Header[name] = []string{value}
			}
			req.Header.Set("X-Tenant", r.tenant)
			req.Header.Set("X-Principal", r.principal)
			res, err := server.Client().Transport.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			return received(res)
		}
	}}
}

// within is a server's context that has the test's values too.
type within struct {
	context.Context
	test context.Context
}

func (c within) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.test.Value(key)
}

// send writes a response as an ordinary handler would.
func send(w http.ResponseWriter, res *idemhttp.Response) {
	for k, v := range res.Headers {
		w.Header().Set(k, v)
	}
	for k, vs := range res.MultiHeaders {
		for _, v := range vs {
			w.Header().Add(k, v)
		}
	}
	for _, cookie := range res.Cookies {
		w.Header().Add("Set-Cookie", cookie)
	}
	w.WriteHeader(res.Status)
	_, _ = w.Write(plain(res))
}

// received reads a response, without what the server says of the exchange.
func received(res *http.Response) (*idemhttp.Response, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	out := &idemhttp.Response{Status: res.StatusCode, Headers: map[string]string{},
		Cookies: res.Header["Set-Cookie"], Body: body}
	for _, name := range []string{"Date", "Content-Length", "Set-Cookie"} {
		res.Header.Del(name)
	}
	for name, values := range res.Header {
		if len(values) == 1 {
			out.Headers[name] = values[0]
			continue
		}
		if out.MultiHeaders == nil {
			out.MultiHeaders = map[string][]string{}
		}
		out.MultiHeaders[name] = values
	}
	return out, nil
}

// plain is the body that the client sees.
func plain(res *idemhttp.Response) []byte {
	if res.Base64 {
		if raw, err := base64.StdEncoding.DecodeString(string(res.Body)); err == nil {
			return raw
		}
	}
	return res.Body
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

// give makes a gateway's handler of the table's.
func give[E, R any](to func(*E, *R, *idemhttp.Response) R, next idemhttp.Next) func(context.Context) (R, error) {
	return func(ctx context.Context) (out R, err error) {
		res, err := next(ctx)
		if res == nil {
			return out, err
		}
		return to(new(E), &out, res), err
	}
}

// see makes the neutral response of a gateway's own.
func see[R any](from func(*R) *idemhttp.Response, res R, err error) (*idemhttp.Response, error) {
	if err != nil {
		return nil, err
	}
	return from(&res), nil
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

func multi(header map[string]string) map[string][]string {
	out := make(map[string][]string, len(header))
	for k, v := range header {
		out[k] = []string{v}
	}
	return out
}
