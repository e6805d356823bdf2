package gateway_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

const (
	policy = `{"principalId":"ada","policyDocument":{"Statement":[{"Effect":"Allow","Action":"execute-api:*",` +
		`"Resource":"arn:aws:execute-api:*:*:*/*/GET/orders/?"}]},` +
		`"context":{"level":9007199254740993,"vip":true,"of":"acme"}}`
	denies = `{"policyDocument":{"Statement":[{"Effect":"Allow","Action":["execute-api:Invoke"],"Resource":["*"]},` +
		`{"Effect":"Deny","Action":"execute-api:Invoke","Resource":"*/orders/1"}]}}`
)

// A function decides by a yes or no, or by a policy.
func TestFunctions(t *testing.T) {
	http2 := gateway.Options{Stage: "live"}
	rest := gateway.Options{Flavour: gateway.RESTAPI, Stage: "live"}
	for name, c := range map[string]struct {
		o      gateway.Options
		f      gateway.Function
		answer string
		err    error
		status int
		body   string
	}{
		"yes": {http2, gateway.Function{Version: "2.0", Simple: true},
			`{"isAuthorized":true,"context":{"of":{"id":"acme"}}}`, nil, 200, ""},
		"no": {http2, gateway.Function{Version: "2.0", Simple: true}, `{"isAuthorized":false}`, nil, 403,
			`{"message":"Forbidden"}`},
		"neither": {http2, gateway.Function{Version: "2.0", Simple: true}, policy, nil, 500,
			`{"message":"Internal Server Error"}`},
		"allowed":     {http2, gateway.Function{Version: "1.0"}, policy, nil, 200, ""},
		"denied":      {http2, gateway.Function{Version: "2.0"}, denies, nil, 403, `{"message":"Forbidden"}`},
		"failed":      {http2, gateway.Function{}, "", errors.New("T: it fails"), 500, `{"message":"Internal Server Error"}`},
		"no policy":   {http2, gateway.Function{}, `{"isAuthorized":true}`, nil, 500, `{"message":"Internal Server Error"}`},
		"REST":        {rest, gateway.Function{}, policy, nil, 200, ""},
		"REST, token": {rest, gateway.Function{Token: true, Valid: regexp.MustCompile("^Bearer ")}, policy, nil, 200, ""},
		"REST, another token": {rest, gateway.Function{Token: true, Valid: regexp.MustCompile("^Basic ")}, policy, nil,
			401, `{"message":"Unauthorized"}`},
		"REST, denied": {rest, gateway.Function{}, denies, nil, 403,
			`{"Message":"User is not authorized to access this resource with an explicit deny"}`},
		"REST, not allowed": {rest, gateway.Function{}, `{"policyDocument":{"Statement":[]}}`, nil, 403,
			`{"Message":"User is not authorized to access this resource"}`},
		"REST, another one allowed": {rest, gateway.Function{}, `{"policyDocument":{"Statement":[{"Effect":"Allow",` +
			`"Action":"execute-api:Invoke","Resource":"*/GET/orders/2"},{"Effect":"Allow","Action":"execute-api:Other",` +
			`"Resource":"*"}]}}`, nil, 403,
			`{"Message":"User is not authorized to access this resource"}`},
		"another case": {http2, gateway.Function{Version: "2.0", Simple: true}, `{"IsAuthorized":true}`, nil, 500,
			`{"message":"Internal Server Error"}`},
		"an action in lower case": {http2, gateway.Function{Version: "1.0"},
			strings.Replace(policy, "execute-api:*", "execute-api:invoke", 1), nil, 200, ""},
		"REST, unauthorized": {rest, gateway.Function{}, "", errors.New("errorString: Unauthorized"), 401,
			`{"message":"Unauthorized"}`},
		"REST, failed": {rest, gateway.Function{}, "", errors.New("T: it fails"), 500, `{"message":null}`},
		"REST, wrong context": {rest, gateway.Function{}, `{"policyDocument":{"Statement":{"Effect":"Allow",` +
			`"Action":"*","Resource":"*"}},"context":{"of":{}}}`, nil, 500, `{"message":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			decides, fn := &recorder{answer: c.answer, err: c.err}, &recorder{answer: `{"statusCode":200}`}
			c.f.Invoke, c.f.Sources = decides.invoke, []string{"$request.header.Authorization"}
			c.o.Authorize = c.f.Authorize
			server := serve(t, map[string]gateway.Invoke{"GET /orders/{id}": fn.invoke}, &c.o)
			url := server.URL + "/live/orders/1"
			got := send(t, "GET", url, "", nil)
			require.Equal(t, http.StatusUnauthorized, got.StatusCode)
			require.Zero(t, decides.calls(), "it says nothing about its sender")
			got = send(t, "GET", url+"?x=1", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer t") })
			require.Equal(t, c.status, got.StatusCode)
			require.Equal(t, c.body, got.body)
			if c.status != 200 {
				require.Zero(t, fn.calls())
				return
			}
			var asked, called map[string]any
			require.NoError(t, json.Unmarshal(decides.events[0], &asked))
			require.NoError(t, json.Unmarshal(fn.events[0], &called))
			const arn = "arn:aws:execute-api:us-east-1:000000000000:local/live/GET/orders/1"
			context := called["requestContext"].(map[string]any)["authorizer"]
			switch {
			case c.f.Token:
				require.Equal(t, map[string]any{"type": "TOKEN", "methodArn": arn, "authorizationToken": "Bearer t"}, asked)
			case c.f.Version == "2.0":
				require.Equal(t, []any{"2.0", "REQUEST", arn, []any{"Bearer t"}, "GET /orders/{id}", map[string]any{"id": "1"}},
					[]any{asked["version"], asked["type"], asked["routeArn"], asked["identitySource"], asked["routeKey"],
						asked["pathParameters"]})
				require.Equal(t, map[string]any{"lambda": map[string]any{"of": map[string]any{"id": "acme"}}}, context)
			default:
				require.Equal(t, []any{"REQUEST", arn, "/orders/{id}", "GET", map[string]any{"x": "1"}},
					[]any{asked["type"], asked["methodArn"], asked["resource"], asked["httpMethod"], asked["queryStringParameters"]})
			}
			require.NotContains(t, asked, "body")
			if c.o.Flavour == gateway.RESTAPI {
				require.Equal(t, map[string]any{"principalId": "ada", "level": "9007199254740993", "vip": "true", "of": "acme"},
					context)
			} else if c.f.Version == "1.0" {
				require.Equal(t, []any{"1.0", "Bearer t", "Bearer t"},
					[]any{asked["version"], asked["identitySource"], asked["authorizationToken"]})
			}
		})
	}
	require.True(t, gateway.SourceFor("method.request.querystring.key"))
	require.False(t, gateway.SourceFor("$context.domainName"))
}

// A policy with what is not evaluated allows nothing, and a line says what it is.
func TestPoliciesThatAreNotEvaluated(t *testing.T) {
	const needs = "a statement needs an Effect, which is Allow or Deny, an Action and a Resource"
	const allow = `{"Effect":"Allow","Action":"execute-api:Invoke","Resource":"*"}`
	for statement, want := range map[string]string{
		`{"Effect":"Deny","Action":"*","NotResource":"*/GET/public"}`://
		"NotResource of a statement is not evaluated here, only Effect, Action and Resource",
		`{"Effect":"Deny","NotAction":"execute-api:ManageConnections","Resource":"*"}`: "NotAction of a statement",
		`{"Sid":"1","Effect":"Allow","Action":"*","Resource":"*","Condition":{"Null":{"a":"true"}}}`://
		"Condition of a statement",
		`{"effect":"Deny","Action":"*","Resource":"*"}`: "effect of a statement",
		`{"Effect":"deny","Action":"*","Resource":"*"}`: needs,
		`{"Effect":"Deny","Action":"*"}`:                needs,
		`{"Effect":"Deny","Resource":"*"}`:              needs,
		`{"Effect":"Deny","Action":1,"Resource":"*"}`:   "Action: json: cannot unmarshal number",
	} {
		decides := &recorder{answer: `{"policyDocument":{"Statement":[` + allow + `,` + statement + `]}}`}
		fn, reports := &recorder{answer: `{"statusCode":200}`}, make(chan string, 1)
		server := serve(t, map[string]gateway.Invoke{"GET /": fn.invoke}, &gateway.Options{
			Authorize: gateway.Function{Invoke: decides.invoke}.Authorize,
			Report:    func(_ string, err error) { reports <- err.Error() }})
		require.Equal(t, 500, send(t, "GET", server.URL+"/", "", nil).StatusCode, statement)
		line := <-reports
		require.Contains(t, line, "gateway: the authorizer's answer: policyDocument: Statement: ", statement)
		require.Contains(t, line, want, statement)
		require.Zero(t, fn.calls())
	}
}

// What an API has no answer for is answered as a failure.
func TestRefusalsThatAServiceDoesNotHave(t *testing.T) {
	fn := &recorder{answer: `{}`}
	server := serve(t, map[string]gateway.Invoke{"GET /": fn.invoke}, &gateway.Options{Flavour: gateway.ALB,
		Authorize: func(gateway.Request) (gateway.Caller, error) { return gateway.Caller{}, gateway.Forbidden("never") }})
	require.Equal(t, 502, send(t, "GET", server.URL+"/", "", nil).StatusCode)
	require.Zero(t, fn.calls())
}
