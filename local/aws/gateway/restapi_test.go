package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/gateway"
)

func TestREST(t *testing.T) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	issuer, err := gateway.NewIssuer("local")
	require.NoError(t, err)
	var e events.APIGatewayProxyRequest
	runs := 0
	fn := typed(idemlambda.RESTAPI(engine, idemhttp.Routes{"POST /payments/{id}": {Name: "charge"}}, idemhttp.Claim("sub"), nil,
		func(_ context.Context, event events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
			runs++
			e = event
			return events.APIGatewayProxyResponse{StatusCode: 201, MultiValueHeaders: map[string][]string{"X-A": {"1", "2"}}, Body: `{"id":1}`}, nil
		}))
	server := serve(t, map[string]gateway.Invoke{"POST /payments/{id}": fn}, &gateway.Options{Flavour: gateway.RESTAPI, Claims: issuer.Claims})
	post := func(tenant, body string) reply {
		token, err := issuer.Token(tenant, nil, time.Hour)
		require.NoError(t, err)
		return send(t, "POST", server.URL+"/prod/payments/p%201?x=1&x=%2C", body, func(r *http.Request) {
			r.Header.Set("Authorization", token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
			r.Header["X-Tag"] = []string{"web", "eu"}
		})
	}
	first, again, reuse, other := post("a", `{"a":1}`), post("a", `{"a":1}`), post("a", `{"a":2}`), post("b", `{"a":2}`)
	require.Equal(t, []int{201, 201, 422, 201}, []int{first.StatusCode, again.StatusCode, reuse.StatusCode, other.StatusCode})
	require.Equal(t, "true", again.Header.Get(idemhttp.HeaderReplayed))
	require.Equal(t, []string{"1", "2"}, first.Header.Values("X-A"))
	require.Equal(t, 2, runs)
	require.Equal(t, []string{"/payments/{id}", "/payments/p%201", "/prod/payments/p%201", "prod", "p 1"},
		[]string{e.Resource, e.Path, e.RequestContext.Path, e.RequestContext.Stage, e.PathParameters["id"]})
	require.Equal(t, []string{"web", "eu"}, e.MultiValueHeaders["X-Tag"])
	require.Equal(t, "eu", e.Headers["X-Tag"])
	require.Equal(t, []string{"1", ","}, e.MultiValueQueryStringParameters["x"])

	for path, want := range map[string]string{"/payments/1": "Missing Authentication Token", "/prod/x": "Missing Authentication Token"} {
		got := send(t, "POST", server.URL+path, "", nil)
		require.Equal(t, 403, got.StatusCode)
		require.JSONEq(t, `{"message":"`+want+`"}`, got.body)
	}
	got := send(t, "POST", server.URL+"/prod/payments/1", "", nil)
	require.Equal(t, 401, got.StatusCode)
	require.JSONEq(t, `{"message":"Unauthorized"}`, got.body)

	for _, fn := range []*recorder{{err: errors.New("x")}, {answer: `{}`}, {answer: `{"statusCode":200,"cookies":[]}`}, {answer: `{"statusCode":200,"body":{}}`}} {
		server := serve(t, map[string]gateway.Invoke{"GET /": fn.invoke}, &gateway.Options{Flavour: gateway.RESTAPI})
		got := send(t, "GET", server.URL+"/prod/", "", nil)
		require.Equal(t, 502, got.StatusCode)
		require.True(t, json.Valid([]byte(got.body)))
		require.Equal(t, `{"message": "Internal server error"}`, got.body)
	}
	goOn := make(chan struct{})
	defer close(goOn)
	hang := func(context.Context, []byte) ([]byte, error) { <-goOn; return nil, nil }
	server = serve(t, map[string]gateway.Invoke{"GET /": hang}, &gateway.Options{Flavour: gateway.RESTAPI, Timeout: time.Millisecond})
	got = send(t, "GET", server.URL+"/prod/", "", nil)
	require.Equal(t, 504, got.StatusCode)
	require.Equal(t, `{"message": "Endpoint request timed out"}`, got.body)
	_, err = gateway.New(map[string]gateway.Invoke{"$default": hang}, &gateway.Options{Flavour: gateway.RESTAPI})
	require.ErrorContains(t, err, "$default")
}
