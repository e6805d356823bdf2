package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/lambda/functions/internal/provider"
	"github.com/idem-go/idempotency/lambda/functions/internal/statement"
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

// The message that brings the worker commits with the acceptance, so there must be a table.
func TestStatementsAreAcceptedForLaterBehindBothAPIs(t *testing.T) {
	client := dynamotest.Client(t)
	table := "idem-" + rand.Text()
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, table))
	store, err := dynamostore.New(client, table, &dynamostore.Options{AttemptTimeout: time.Minute})
	require.NoError(t, err)
	engine, err := idem.New(store, &idem.Options{ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute})
	require.NoError(t, err)
	behind := func(api string) any {
		handler, err := (&service{}).behind(engine, api, "none")
		require.NoError(t, err)
		return handler
	}
	const body = `{"reference": "june", "kilobytes": 1}`
	header := func(key string) map[string]string {
		return map[string]string{"Idempotency-Key": key, "Content-Type": "application/json"}
	}
	type answer struct {
		status         int
		location, body string
	}
	for api, ask := range map[string]func(method, path, resource, body string) answer{
		"http": func(method, path, resource, body string) answer {
			r := request{RouteKey: method + " " + resource, RawPath: path, Body: body, Headers: header("key-http-0123456789")}
			r.RequestContext.HTTP.Method, r.RequestContext.HTTP.Path = method, path
			res, err := behind("http").(idemlambda.HTTPAPIHandler)(t.Context(), r)
			require.NoError(t, err)
			return answer{res.StatusCode, res.Headers["Location"], res.Body}
		},
		"rest": func(method, path, resource, body string) answer {
			r := events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, Resource: resource, Body: body,
				Headers: header("key-rest-0123456789")}
			res, err := behind("rest").(idemlambda.RESTAPIHandler)(t.Context(), r)
			require.NoError(t, err)
			return answer{res.StatusCode, res.Headers["Location"], res.Body}
		},
	} {
		t.Run(api, func(t *testing.T) {
			accepted := ask("POST", "/statements", "/statements", body)
			require.Equal(t, 202, accepted.status, accepted.body)
			require.Equal(t, 202, ask("GET", "/"+accepted.location, statement.Status, "").status)
			require.Equal(t, 204, ask("DELETE", "/"+accepted.location, statement.Status, "").status)
			require.Equal(t, 404, ask("GET", "/statements/june", statement.Status, "").status)
		})
	}
}
