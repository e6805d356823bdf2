package gateway_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

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
