package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

// What the service itself answers: to requests that are too large, before the function runs, and for
// functions that fail.
func TestRefusals(t *testing.T) {
	const (
		ok       = `{"statusCode":200,"headers":{},"body":"y"}`
		large    = `{"message":"Request Entity Too Large"}`
		failed   = `{"message":"Internal Server Error"}`
		longHead = `{"message":"Request Header Fields Too Large"}`
		badREST  = `{"message": "Internal server error"}`
		badALB   = "<center><h1>502 Bad Gateway</h1></center>"
	)
	full := strings.Repeat("x", gateway.MaxResponseBytes-2)
	rest, alb := gateway.Options{Flavour: gateway.RESTAPI}, gateway.Options{Flavour: gateway.ALB}
	url, multi := gateway.Options{Flavour: gateway.FunctionURL},
		gateway.Options{Flavour: gateway.ALB, MultiValueHeaders: true}
	big := errors.New("it is not invoked")
	for name, c := range map[string]struct {
		o            gateway.Options
		header, body int    // bytes of one header's value, and of the body
		media        string // of the body
		answer       string
		err          error // of the function; big: it is not invoked
		status       int
		want         string // in the body
		reason       string // that is reported
	}{
		"header":        {header: 10240, err: big, status: 431, want: longHead},
		"less header":   {header: 9900, answer: ok, status: 200, want: "y"},
		"event, Base64": {body: 5 << 20, err: big, status: 413, want: large},
		"text":          {body: 6<<20 - 2048, media: "text/plain", answer: ok, status: 200, want: "y"},
		"larger text":   {body: 6 << 20, media: "text/plain", err: big, status: 413, want: large},
		"body":          {body: 10<<20 + 1, media: "text/plain", err: big, status: 413, want: large},
		"error":         {err: errors.New("boom"), status: 500, want: failed, reason: "boom"},
		"not JSON":      {answer: `<html>`, status: 500, want: failed, reason: "not JSON"},
		"nothing":       {answer: ``, status: 500, want: failed, reason: "not JSON"},
		"status zero":   {answer: `{"statusCode":0}`, status: 500, want: failed, reason: "statusCode 0"},
		"status null":   {answer: `{"statusCode":null}`, status: 500, want: failed, reason: "statusCode null"},
		"status 100":    {answer: `{"statusCode":100}`, status: 500, want: failed, reason: "statusCode 100"},
		"body object":   {answer: `{"statusCode":200,"body":{}}`, status: 500, want: failed, reason: `member "body"`},
		"bad Base64": {answer: `{"statusCode":200,"body":"%","isBase64Encoded":true}`,
			status: 500, want: failed, reason: "illegal base64"},
		"header list": {answer: `{"statusCode":200,"headers":{"a":["b"]}}`,
			status: 500, want: failed, reason: `header "a"`},
		"cookies text": {answer: `{"statusCode":200,"cookies":"a=1"}`,
			status: 500, want: failed, reason: `member "cookies"`},
		"6 MB":      {answer: `"` + full + `"`, status: 200, want: full},
		"over 6 MB": {answer: `"` + full + `x"`, status: 500, want: failed, reason: "6291557 bytes"},

		"REST API, header": {o: rest, header: 10240, err: big, status: 431, want: longHead},
		"REST API, event": {o: rest, body: 6<<20 + 1, err: big,
			status: 413, want: `{"message": "Request Too Long"}`},
		"REST API, body": {o: rest, body: 10<<20 + 1, err: big,
			status: 413, want: "HTTP content length exceeded 10485760 bytes."},
		"REST API, error":     {o: rest, err: errors.New("boom"), status: 502, want: badREST, reason: "boom"},
		"REST API, no status": {o: rest, answer: `{}`, status: 502, want: badREST, reason: "statusCode"},
		"REST API, another member": {o: rest, answer: `{"statusCode":200,"cookies":[]}`,
			status: 502, want: badREST, reason: `member "cookies"`},
		"REST API, body object": {o: rest, answer: `{"statusCode":200,"body":{}}`,
			status: 502, want: badREST, reason: `member "body"`},

		"URL, header": {o: url, header: 1 << 20, err: big, status: 431, want: "Request Header Fields Too Large"},
		"URL, less":   {o: url, header: 100 << 10, answer: ok, status: 200, want: "y"},
		"URL, body":   {o: url, body: 6<<20 + 1, err: big, status: 413, want: "Request Entity Too Large"},
		"URL, error":  {o: url, err: errors.New("boom"), status: 502, want: "Internal Server Error", reason: "boom"},

		"balancer, header": {o: alb, header: 64 << 10, err: big,
			status: 400, want: "<center><h1>400 Bad Request</h1></center>"},
		"balancer, shorter header": {o: alb, header: 63 << 10, answer: ok, status: 200, want: "y"},
		"balancer, 1 MB":           {o: alb, body: 1 << 20, answer: ok, status: 200, want: "y"},
		"balancer, over 1 MB": {o: alb, body: 1<<20 + 1, err: big,
			status: 413, want: "<center><h1>413 Request Entity Too Large</h1></center>"},
		"balancer, error":     {o: alb, err: errors.New("boom"), status: 502, want: badALB, reason: "boom"},
		"balancer, no status": {o: alb, answer: `{"headers":{}}`, status: 502, want: badALB, reason: "statusCode"},
		"balancer, no headers": {o: alb, answer: `{"statusCode":200,"headers":null}`,
			status: 502, want: badALB, reason: "no headers"},
		"balancer, the other map": {o: multi, answer: ok, status: 502, want: badALB, reason: "no multiValueHeaders"},
		"balancer, too long answer": {o: alb, answer: ok + strings.Repeat(" ", 1<<20),
			status: 502, want: badALB, reason: "the service takes at most"},
		"balancer, heavy headers": {o: alb, answer: `{"statusCode":200,"headers":{"X":"` +
			strings.Repeat("v", 32<<10) + `"}}`,
			status: 502, want: badALB, reason: "the balancer takes at most"},
	} {
		t.Run(name, func(t *testing.T) {
			fn, reasons := &recorder{answer: c.answer, err: c.err}, make(chan error, 1)
			c.o.Report = func(_ string, err error) { reasons <- err }
			routes, path := map[string]gateway.Invoke{"$default": fn.invoke}, "/"
			if c.o.Flavour == gateway.RESTAPI {
				routes, path = map[string]gateway.Invoke{"POST /": fn.invoke}, "/prod/"
			}
			got := send(t, "POST", serve(t, routes, &c.o).URL+path, strings.Repeat("a", c.body), func(r *http.Request) {
				r.Header.Set("X-Long", strings.Repeat("h", c.header))
				r.Header.Set("Content-Type", c.media)
			})
			require.Equal(t, c.status, got.StatusCode)
			require.Contains(t, got.body, c.want)
			require.Equal(t, c.err != big, fn.calls() == 1)
			if c.reason != "" {
				require.ErrorContains(t, <-reasons, c.reason)
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	fn := &recorder{answer: `{}`}
	all := map[string]gateway.Invoke{}
	for _, key := range []string{
		"GET /", "POST /payments", "GET /payments/{id}", "GET /payments/latest", "ANY /payments/{id}",
		"GET /payments/{id}/lines/{line}", "GET /{proxy+}", "PATCH /payments/{rest+}",
	} {
		all[key] = fn.invoke
	}
	server := serve(t, all, nil)
	for _, c := range []struct {
		method, path, route string
		parameters          map[string]string
	}{
		{"GET", "/", "GET /", nil},
		{"POST", "/payments", "POST /payments", nil},
		{"GET", "/payments/latest", "GET /payments/latest", nil},
		{"GET", "/payments/p-1", "GET /payments/{id}", map[string]string{"id": "p-1"}},
		{"GET", "/payments/a%2Fb%20c", "GET /payments/{id}", map[string]string{"id": "a/b c"}},
		{"DELETE", "/payments/p-1", "ANY /payments/{id}", map[string]string{"id": "p-1"}},
		{"PATCH", "/payments/p-1", "ANY /payments/{id}", map[string]string{"id": "p-1"}},
		{"PATCH", "/payments/p-1/x", "PATCH /payments/{rest+}", map[string]string{"rest": "p-1/x"}},
		{"PATCH", "/%70ayments/p%2F1", "ANY /payments/{id}", map[string]string{"id": "p/1"}},
		{"GET", "/payments/p-1/lines/2", "GET /payments/{id}/lines/{line}", map[string]string{"id": "p-1", "line": "2"}},
		{"GET", "/payments", "GET /{proxy+}", map[string]string{"proxy": "payments"}},
		{"GET", "/payments/", "GET /{proxy+}", map[string]string{"proxy": "payments/"}},
		{"GET", "/other/a/b", "GET /{proxy+}", map[string]string{"proxy": "other/a/b"}},
		{"PUT", "/other", "", nil},
		{"POST", "/", "", nil},
		{"POST", "/Payments", "", nil},
		{"PATCH", "/payments/", "", nil},
	} {
		before := fn.calls()
		got := send(t, c.method, server.URL+c.path, "", nil)
		if c.route == "" {
			require.Equal(t, 404, got.StatusCode, c.path)
			require.Equal(t, `{"message":"Not Found"}`, got.body)
			require.Equal(t, before, fn.calls())
			continue
		}
		event := fn.last(t)
		require.Equal(t, c.route, event.RouteKey, "%s %s", c.method, c.path)
		require.Equal(t, c.route, event.RequestContext.RouteKey)
		require.Equal(t, c.parameters, event.PathParameters)
	}
}

func TestBadRoutes(t *testing.T) {
	invoke := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	for _, key := range []string{
		"", "/payments", "POST ", "POST payments", "POST /payments?x=1", "post /payments",
		"GET /a{id}", "GET /{id", "GET /{}", "GET /{+}", "GET /{a+}/b",
	} {
		_, err := gateway.New(map[string]gateway.Invoke{key: invoke}, nil)
		require.ErrorContains(t, err, "is neither", key)
	}
	_, err := gateway.New(nil, nil)
	require.ErrorContains(t, err, "no routes")
	_, err = gateway.New(map[string]gateway.Invoke{"GET /": nil}, nil)
	require.ErrorContains(t, err, `route "GET /" has no function`)
}
