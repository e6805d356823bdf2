package idemlambda

import (
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/stretchr/testify/require"
)

func TestRESTRequest(t *testing.T) {
	r := requestOf(t, "apigw-v1-repeated-headers")
	require.Equal(t, []string{"web", "checkout", "eu"}, r.Header["X-Tag"])
	require.Equal(t, []string{"customer", "items"}, r.Query["expand"])

	proxied := requestOf(t, "apigw-v1-custom-domain")
	require.Equal(t, "/{proxy+}", proxied.Route)
	require.Equal(t, "/payments", proxied.Path)
	require.Equal(t, map[string]string{"proxy": "payments"}, proxied.PathParameters)

	// What hand-made events leave out.
	bare := requestOfV1(&events.APIGatewayProxyRequest{
		Path: "/a/1", Headers: map[string]string{"X-A": "1"}, QueryStringParameters: map[string]string{"q": "1,2"},
		RequestContext: events.APIGatewayProxyRequestContext{HTTPMethod: "PATCH", ResourcePath: "/a/{id}"},
	})
	require.Equal(t, "PATCH", bare.Method)
	require.Equal(t, "/a/{id}", bare.Route)
	require.Equal(t, map[string][]string{"X-A": {"1"}}, bare.Header)
	require.Equal(t, map[string][]string{"q": {"1,2"}}, bare.Query)
	empty := requestOfV1(&events.APIGatewayProxyRequest{})
	require.Empty(t, empty.Path)
	require.Empty(t, empty.Header)

	// An HTTP API that sends payload 1.0.
	e := &events.APIGatewayProxyRequest{Resource: "$default", Path: "/prod/payments"}
	e.RequestContext.Stage, e.RequestContext.APIID, e.RequestContext.DomainName = "prod", "a1", "a1.execute-api.eu-central-1.amazonaws.com"
	e.RequestContext.Authorizer = map[string]any{"claims": map[string]any{"sub": "anna", "level": 3.0}, "scopes": nil}
	r = requestOfV1(e)
	require.Empty(t, r.Route)
	require.Equal(t, "/payments", r.Path)
	require.Equal(t, map[string]string{"sub": "anna"}, r.Identity.Claims)
	require.Nil(t, r.Identity.Authorizer)
}

func TestHTTPAPIPathBehindADomain(t *testing.T) {
	e := sample(t, "apigw-v2-none")
	e.RouteKey, e.RawPath, e.PathParameters = "ANY /{proxy+}", "/billing/payments", map[string]string{"proxy": "payments"}
	e.RequestContext.DomainName, e.RequestContext.Stage = "api.example.com", "prod"
	require.Equal(t, "/payments", requestOfV2(&e).Path)

	// The raw path is decoded already: a percent sign is one.
	e.RouteKey, e.RawPath, e.PathParameters = "POST /payments/{id}", "/payments/100%", map[string]string{"id": "100%"}
	require.Equal(t, "/payments/100%", requestOfV2(&e).Path)
}

// A function URL has no routes of its own: a template is found by the path, and the
// path's parameters tell requests apart.
func TestFunctionURLFindsTemplates(t *testing.T) {
	n := 0
	h := functions["furl"](newEngine(t, memory()), idemhttp.Routes{"POST /payments/{id}/refunds": charge}, idemhttp.SingleTenant, nil, &n).(FunctionURLHandler)
	send := func(path string) int {
		e := decoded[events.LambdaFunctionURLRequest](t, "furl-none")
		e.RawPath = path
		res, err := h(t.Context(), e)
		require.NoError(t, err)
		return res.StatusCode
	}
	require.Equal(t, 201, send("/payments/1/refunds"))
	require.Equal(t, 201, send("/payments/1/refunds"))
	require.Equal(t, 422, send("/payments/2/refunds"))
	require.Equal(t, 500, send("/payments/1"))
	require.Equal(t, 1, n)
}

// Several values become one line where the gateway has no other way.
func TestJoinedHeaders(t *testing.T) {
	res := &idemhttp.Response{
		Headers:      map[string]string{"A": "1", "vary": "never"},
		MultiHeaders: map[string][]string{"Vary": {"Accept", "Origin"}, "Set-Cookie": {"a=b", "c=d"}, "X-None": {}},
	}
	require.Equal(t, map[string]string{"A": "1", "Vary": "Accept, Origin", "Set-Cookie": "c=d"}, joined(res))
	require.Equal(t, map[string][]string{
		"A": {"1"}, "Vary": {"Accept", "Origin"}, "Set-Cookie": {"a=b", "c=d"}, "X-None": {},
	}, spread(res))
	require.Nil(t, joined(&idemhttp.Response{}))
	require.Equal(t, "Accept, Origin", toURL(nil, nil, res).Headers["Vary"])
}

// The balancer passes query parameters on as they came.
func TestALBQuery(t *testing.T) {
	single := requestOfALB(&events.ALBTargetGroupRequest{QueryStringParameters: map[string]string{"a%20b": "c%2Cd", "e": "f+g", "bad": "%zz"}})
	require.Equal(t, map[string][]string{"a b": {"c,d"}, "e": {"f g"}}, single.Query)
	require.Equal(t, "&bad=%zz", single.RawQuery)
	// No name that can be decoded looks like one that cannot.
	require.Equal(t, map[string][]string{"": {"bad=%zz"}}, requestOfALB(&events.ALBTargetGroupRequest{QueryStringParameters: map[string]string{"": "bad%3D%25zz"}}).Query)
	for range 20 {
		multi := requestOfALB(&events.ALBTargetGroupRequest{MultiValueQueryStringParameters: map[string][]string{"a": {"3", "%34"}, "%61": {"1", "2"}}})
		require.Equal(t, map[string][]string{"a": {"1", "2", "3", "4"}}, multi.Query)
	}
}

// The balancer answers with 502 where the map of its mode is null.
func TestALBResponseHasItsMap(t *testing.T) {
	for _, multiValue := range []bool{false, true} {
		e := &events.ALBTargetGroupRequest{Headers: map[string]string{}}
		if multiValue {
			e = &events.ALBTargetGroupRequest{MultiValueHeaders: map[string][]string{}}
		}
		for _, given := range []events.ALBTargetGroupResponse{{}, {StatusCode: 204, StatusDescription: "204 Done"}, {StatusCode: 200, StatusDescription: "200 OK"}} {
			out := toALB(e, &given, &idemhttp.Response{Status: 204})
			require.NotNil(t, out.Headers)
			require.NotNil(t, out.MultiValueHeaders)
			want := "204 No Content"
			if given.StatusCode == 204 {
				want = given.StatusDescription
			}
			require.Equal(t, want, out.StatusDescription)
		}
		out := toALB(e, new(events.ALBTargetGroupResponse), &idemhttp.Response{Status: 599, Headers: map[string]string{"A": "1"}})
		require.Equal(t, "599", out.StatusDescription)
		require.Equal(t, multiValue, len(out.MultiValueHeaders) == 1)
		require.Equal(t, !multiValue, len(out.Headers) == 1)
	}
}
