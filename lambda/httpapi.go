package idemlambda

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
)

// httpAPILimit is an HTTP API's longest integration timeout.
const httpAPILimit = 30 * time.Second

// HTTPAPIHandler is a handler of API Gateway's HTTP APIs, payload format 2.0.
type HTTPAPIHandler = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// HTTPAPI makes a handler of an HTTP API idempotent under the contract of package
// idemhttp. The routes are matched with the event's route key. Under $default, and if the
// key's template is not declared, they are matched with the path, without the stage or
// base path if the route or the API's own endpoint shows it. A header is always one line:
// the API joins repeats with commas. In responses the API takes cookies from Cookies and
// drops MultiValueHeaders, live and on replay.
//
// An error of the handler reaches the runtime as the handler gave it; the API then answers
// with 500.
// That of an interrupted or unreadable step does not: the client gets 409 or 503 with its code,
// as [idemhttp.Contract.Serve] says. A mistake in the set-up panics, see the package's
// documentation.
func HTTPAPI(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options, handler HTTPAPIHandler) HTTPAPIHandler {
	return gateway[events.APIGatewayV2HTTPRequest, events.APIGatewayV2HTTPResponse]{
		name: "HTTPAPI", request: requestOfV2, from: fromV2, to: toV2, limit: httpAPILimit,
		received: func(e *events.APIGatewayV2HTTPRequest) int64 { return e.RequestContext.TimeEpoch },
	}.handler(engine, routes, tenant, o, handler)
}

func requestOfV2(e *events.APIGatewayV2HTTPRequest) *idemhttp.Request {
	r := &idemhttp.Request{
		Method:         e.RequestContext.HTTP.Method,
		PathParameters: e.PathParameters,
		Stage:          e.RequestContext.Stage,
		Header:         lines(e.Headers),
		Body:           bodyOf(e.Body, e.IsBase64Encoded),
		Source:         e,
	}
	r.Query, r.RawQuery = queryOf(e.RawQueryString, e.QueryStringParameters)
	// "POST /payments/{id}", "ANY /payments" or "$default".
	method, template, ok := strings.Cut(e.RouteKey, " ")
	if ok {
		r.Route = template
	}
	if r.Method == "" && ok && method != "ANY" {
		r.Method = method
	}
	// The raw path is decoded already, and must not be read as a URL.
	r.Path = e.RawPath
	if ok {
		r.Path = idemhttp.WithoutBase(r.Path, template, e.PathParameters)
	}
	if r.Path == e.RawPath {
		c := &e.RequestContext
		r.Path = withoutStage(r.Path, c.Stage, c.DomainName, c.APIID)
	}
	if a := e.RequestContext.Authorizer; a != nil {
		r.Identity.Authorizer = a.Lambda
		if a.JWT != nil {
			r.Identity.Claims = a.JWT.Claims
		}
		if a.IAM != nil {
			r.Identity.AccountID, r.Identity.UserID = a.IAM.AccountID, a.IAM.UserID
			r.Identity.CognitoIdentityID = a.IAM.CognitoIdentity.IdentityID
		}
	}
	return r
}

func fromV2(res *events.APIGatewayV2HTTPResponse) *idemhttp.Response {
	return &idemhttp.Response{
		Status: res.StatusCode, Headers: res.Headers, MultiHeaders: res.MultiValueHeaders,
		Cookies: res.Cookies, Body: []byte(res.Body), Base64: res.IsBase64Encoded,
	}
}

func toV2(_ *events.APIGatewayV2HTTPRequest, _ *events.APIGatewayV2HTTPResponse, res *idemhttp.Response) events.APIGatewayV2HTTPResponse {
	return events.APIGatewayV2HTTPResponse{
		StatusCode: res.Status, Headers: res.Headers, MultiValueHeaders: res.MultiHeaders,
		Cookies: res.Cookies, Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
}
