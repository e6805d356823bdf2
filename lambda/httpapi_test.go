package idemlambda

import (
	"context"
	"encoding/base64"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/stretchr/testify/require"
)

func sample(t testing.TB, name string) events.APIGatewayV2HTTPRequest {
	t.Helper()
	return decoded[events.APIGatewayV2HTTPRequest](t, name)
}

// receiptOf is a handler with everything in its response that 2.0 knows.
func receiptOf(n *int) HTTPAPIHandler {
	return func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		*n++
		return events.APIGatewayV2HTTPResponse{
			StatusCode:        201,
			Headers:           map[string]string{"content-type": "application/json", "X-Charge": "ch_1", "Set-Cookie": "a=b"},
			MultiValueHeaders: map[string][]string{"Vary": {"Accept", "Origin"}},
			Cookies:           []string{"session=1; HttpOnly"},
			Body:              base64.StdEncoding.EncodeToString([]byte(`{"id":"ch_1"}`)),
			IsBase64Encoded:   true,
		}, nil
	}
}

// A tenant function of one's own reads the event.
func TestSourceIsTheEvent(t *testing.T) {
	n := 0
	h := HTTPAPI(newEngine(t, memory()), idemhttp.AnyRoute(charge), func(_ context.Context, r *idemhttp.Request) (string, error) {
		return r.Source.(*events.APIGatewayV2HTTPRequest).RequestContext.APIID, nil
	}, nil, receiptOf(&n))
	res, err := h(t.Context(), sample(t, "apigw-v2-none"))
	require.NoError(t, err)
	require.Equal(t, 201, res.StatusCode)
}

func TestRequestOfAnEvent(t *testing.T) {
	e := sample(t, "apigw-v2-repeated-headers")
	r := requestOfV2(&e)
	require.Equal(t, "POST", r.Method)
	require.Equal(t, "/payments", r.Route)
	require.Equal(t, map[string][]string{"expand": {"customer", "items"}, "dryRun": {"false"}}, r.Query)
	require.Equal(t, []string{"web,checkout,eu"}, r.Header["x-tag"])
	require.Len(t, r.Header, len(e.Headers))
	for name, value := range e.Headers {
		require.Equal(t, []string{value}, r.Header[name])
	}

	// What hand-made events leave out.
	bare := requestOfV2(&events.APIGatewayV2HTTPRequest{RouteKey: "PATCH /a/{id}", QueryStringParameters: map[string]string{"a": "1,2"}})
	require.Equal(t, "PATCH", bare.Method)
	require.Equal(t, "/a/{id}", bare.Route)
	require.Equal(t, map[string][]string{"a": {"1,2"}}, bare.Query)
	require.Empty(t, requestOfV2(&events.APIGatewayV2HTTPRequest{RouteKey: "ANY /a"}).Method)
	require.Equal(t, "a=%zz", requestOfV2(&events.APIGatewayV2HTTPRequest{RawQueryString: "a=%zz"}).RawQuery)
}

func TestRoutes(t *testing.T) {
	for _, c := range []struct {
		name, routeKey, path, stage, domain string
		ok                                  bool
	}{
		{"template", "POST /payments", "/payments", "$default", "", true},
		{"any method", "ANY /payments", "/payments", "$default", "", true},
		{"default", "$default", "/payments", "$default", "", true},
		{"default in a stage", "$default", "/prod/payments", "prod", "a1.execute-api.eu-central-1.amazonaws.com", true},
		{"default, custom domain", "$default", "/payments", "prod", "api.example.com", true},
		{"custom domain's path looks like a stage", "$default", "/prod/payments", "prod", "api.example.com", false},
		{"stage is only a prefix", "$default", "/production/payments", "prod", "a1.execute-api.eu-central-1.amazonaws.com", false},
		{"stage alone", "$default", "/prod", "prod", "a1.execute-api.eu-central-1.amazonaws.com", false},
		{"proxy", "ANY /{proxy+}", "/payments", "$default", "", true},
		{"other path", "$default", "/refunds", "$default", "", false},
		{"slash at the end", "$default", "/payments/", "$default", "", false},
		{"other template", "POST /refunds", "/refunds", "$default", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			h := HTTPAPI(newEngine(t, memory()), idemhttp.Routes{"POST /payments": charge}, idemhttp.SingleTenant, nil, receiptOf(&n))
			e := sample(t, "apigw-v2-none")
			e.RouteKey, e.RawPath = c.routeKey, c.path
			e.RequestContext.Stage, e.RequestContext.DomainName, e.RequestContext.APIID = c.stage, c.domain, "a1"
			res, err := h(t.Context(), e)
			require.NoError(t, err)
			require.Equal(t, c.ok, n == 1)
			if !c.ok {
				require.Equal(t, 500, res.StatusCode)
				require.Contains(t, res.Body, idemhttp.CodeUndeclared)
			}
		})
	}
}

// Another value of a path parameter, or another query, is another request.
func TestPathParametersAndQueryCount(t *testing.T) {
	n := 0
	h := HTTPAPI(newEngine(t, memory()), idemhttp.Routes{"POST /payments/{id}": charge}, idemhttp.SingleTenant, nil, receiptOf(&n))
	e := sample(t, "apigw-v2-none")
	e.RouteKey, e.RawPath, e.PathParameters = "POST /payments/{id}", "/payments/1", map[string]string{"id": "1"}
	_, err := h(t.Context(), e)
	require.NoError(t, err)
	other := e
	other.RawPath, other.PathParameters = "/payments/2", map[string]string{"id": "2"}
	res, err := h(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, 422, res.StatusCode)
	other = e
	other.RawQueryString = "notify=false"
	res, err = h(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, 422, res.StatusCode)
	require.Equal(t, 1, n)
}
