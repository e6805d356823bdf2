package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/lambda/functions/internal/provider"
)

func TestBehindARESTAPI(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte(`{"id": "ch_1"}`))
	}))
	defer srv.Close()
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	handler, err := (&service{provider: provider.Client{URL: srv.URL}}).behind(engine, "rest", "lambda:tenant")
	require.NoError(t, err)
	r := events.APIGatewayProxyRequest{
		HTTPMethod: "POST", Path: "/payments", Resource: "/payments", Body: good,
		Headers: map[string]string{"Idempotency-Key": "key-0123456789abc", "Content-Type": "application/json"},
	}
	call := handler.(idemlambda.RESTAPIHandler)
	res, err := call(context.Background(), r)
	require.NoError(t, err)
	require.Equal(t, 403, res.StatusCode, "nobody without a tenant")
	r.RequestContext.Authorizer = map[string]any{"tenant": "acme"}
	for range 2 {
		res, err = call(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, 201, res.StatusCode, res.Body)
	}
	require.Equal(t, 1, asked)
}

func TestBehindRefuses(t *testing.T) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	for _, set := range [][2]string{{"soap", ""}, {"http", "jwt:"}, {"http", "cookie"}, {"http", "iam:x"}} {
		_, err := (&service{}).behind(engine, set[0], set[1])
		require.ErrorContains(t, err, "use ", set)
	}
	for _, tenant := range []string{"", "jwt:email", "lambda:tenant", "iam", "none"} {
		handler, err := (&service{}).behind(engine, "", tenant)
		require.NoError(t, err)
		require.IsType(t, idemlambda.HTTPAPIHandler(nil), handler)
	}
}
