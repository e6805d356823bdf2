package gateway_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

func TestALBEvent(t *testing.T) {
	for _, multi := range []bool{false, true} {
		fn := &recorder{answer: `{"statusCode":200,"headers":{"X-A":"1"},"multiValueHeaders":{"X-A":["1","2"]}}`}
		server := serve(t, map[string]gateway.Invoke{"$default": fn.invoke},
			&gateway.Options{Flavour: gateway.ALB, MultiValueHeaders: multi})
		got := send(t, "POST", server.URL+"/a%20b?x=%2C&x=2", "{}", func(r *http.Request) {
			r.Header["X-Tag"] = []string{"web", "eu"}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Content-Encoding", "br")
		})
		var e events.ALBTargetGroupRequest
		require.NoError(t, json.Unmarshal(fn.events[0], &e))
		require.Equal(t, []any{"/a%20b", "POST", "e30=", true}, []any{e.Path, e.HTTPMethod, e.Body, e.IsBase64Encoded})
		if multi {
			require.Nil(t, e.Headers)
			require.Equal(t, []string{"web", "eu"}, e.MultiValueHeaders["x-tag"])
			require.Equal(t, []string{"%2C", "2"}, e.MultiValueQueryStringParameters["x"])
			require.Equal(t, []string{"1", "2"}, got.Header.Values("X-A"))
		} else {
			require.Nil(t, e.MultiValueHeaders)
			require.Equal(t, "eu", e.Headers["x-tag"])
			require.Equal(t, "2", e.QueryStringParameters["x"])
			require.Equal(t, []string{"1"}, got.Header.Values("X-A"))
		}
	}
}

func TestREST(t *testing.T) {
	issuer, err := gateway.NewIssuer("local")
	require.NoError(t, err)
	token, err := issuer.Token("a", nil, time.Hour)
	require.NoError(t, err)
	fn := &recorder{answer: `{"statusCode":201,"multiValueHeaders":{"X-A":["1","2"]},"body":"{}"}`}
	server := serve(t, map[string]gateway.Invoke{"POST /payments/{id}": fn.invoke},
		&gateway.Options{Flavour: gateway.RESTAPI, Claims: issuer.Claims})
	got := send(t, "POST", server.URL+"/prod/payments/p%201?x=1&x=%2C", "{}", func(r *http.Request) {
		r.Header.Set("Authorization", token)
		r.Header["X-Tag"] = []string{"web", "eu"}
	})
	require.Equal(t, 201, got.StatusCode)
	require.Equal(t, []string{"1", "2"}, got.Header.Values("X-A"))
	var e events.APIGatewayProxyRequest
	require.NoError(t, json.Unmarshal(fn.events[0], &e))
	require.Equal(t, []string{"/payments/{id}", "/payments/p%201", "/prod/payments/p%201", "prod", "p 1"},
		[]string{e.Resource, e.Path, e.RequestContext.Path, e.RequestContext.Stage, e.PathParameters["id"]})
	require.Equal(t, []string{"web", "eu"}, e.MultiValueHeaders["X-Tag"])
	require.Equal(t, "eu", e.Headers["X-Tag"])
	require.Equal(t, []string{"1", ","}, e.MultiValueQueryStringParameters["x"])
	require.Equal(t, "a", e.RequestContext.Authorizer["claims"].(map[string]any)["sub"])

	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/payments/1": {403, "Missing Authentication Token"}, "/prod/x": {403, "Missing Authentication Token"},
		"/prod/payments/1": {401, "Unauthorized"},
	} {
		got := send(t, "POST", server.URL+path, "", nil)
		require.Equal(t, want.status, got.StatusCode)
		require.JSONEq(t, `{"message":"`+want.text+`"}`, got.body)
	}
}
