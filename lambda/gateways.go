package idemlambda

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
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
// An error of the handler reaches the runtime as the handler gave it; the API then answers with 500. One that is marked
// as [idem.NotExecuted] or [idem.Permanent], or is that of an interrupted or unreadable step, does not: the client gets
// a problem with its code, as [idemhttp.Contract.Serve] says. A mistake in the set-up panics, see the package's
// documentation.
func HTTPAPI(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options,
	handler HTTPAPIHandler) HTTPAPIHandler {
	return gateway[events.APIGatewayV2HTTPRequest, events.APIGatewayV2HTTPResponse]{
		name: "HTTPAPI", request: requestOfV2, from: fromV2, to: toV2, limit: httpAPILimit, size: maxResponse,
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

func toV2(_ *events.APIGatewayV2HTTPRequest, _ *events.APIGatewayV2HTTPResponse,
	res *idemhttp.Response) events.APIGatewayV2HTTPResponse {
	return events.APIGatewayV2HTTPResponse{
		StatusCode: res.Status, Headers: res.Headers, MultiValueHeaders: res.MultiHeaders,
		Cookies: res.Cookies, Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
}

// restAPILimit is a REST API's default integration timeout. Regional APIs can have a
// longer one; a wait then ends earlier than necessary.
const restAPILimit = 29 * time.Second

// RESTAPIHandler is a handler of API Gateway's REST APIs, payload format 1.0,
// which HTTP APIs can send as well.
type RESTAPIHandler = func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)

// RESTAPI makes a handler of a REST API idempotent under the contract of package
// idemhttp. The routes are matched with the event's resource. If the resource is not
// declared, such as /{proxy+}, they are matched with the path, without the base path of a
// custom domain. Claims are those of a Cognito user pool, and the authorizer's context is
// that of a Lambda authorizer.
//
// Errors and mistakes are as with [HTTPAPI], but the answer to an error is 502.
func RESTAPI(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options,
	handler RESTAPIHandler) RESTAPIHandler {
	return gateway[events.APIGatewayProxyRequest, events.APIGatewayProxyResponse]{
		name: "RESTAPI", request: requestOfV1, from: fromV1, to: toV1, limit: restAPILimit, size: maxResponse,
		received: func(e *events.APIGatewayProxyRequest) int64 { return e.RequestContext.RequestTimeEpoch },
	}.handler(engine, routes, tenant, o, handler)
}

func requestOfV1(e *events.APIGatewayProxyRequest) *idemhttp.Request {
	c := &e.RequestContext
	r := &idemhttp.Request{
		Method:         cmp.Or(e.HTTPMethod, c.HTTPMethod),
		Route:          cmp.Or(e.Resource, c.ResourcePath),
		Stage:          c.Stage,
		PathParameters: e.PathParameters,
		Query:          e.MultiValueQueryStringParameters,
		Header:         e.MultiValueHeaders,
		Body:           bodyOf(e.Body, e.IsBase64Encoded),
		Source:         e,
	}
	// The single-value maps have only the last value; hand-made events may have no others.
	if len(r.Query) == 0 {
		r.Query, _ = queryOf("", e.QueryStringParameters)
	}
	if len(r.Header) == 0 {
		r.Header = lines(e.Headers)
	}
	if strings.HasSuffix(r.Route, "$default") { // an HTTP API
		r.Route = ""
		r.Path = withoutStage(e.Path, c.Stage, c.DomainName, c.APIID)
	} else {
		r.Path = idemhttp.WithoutBase(e.Path, r.Route, e.PathParameters)
	}
	r.Identity = identityOfV1(c)
	return r
}

func identityOfV1(c *events.APIGatewayProxyRequestContext) idemhttp.Identity {
	// Account and user are set by IAM authorization only.
	id := idemhttp.Identity{
		AccountID: c.Identity.AccountID, UserID: c.Identity.User,
		CognitoIdentityID: c.Identity.CognitoIdentityID, APIKeyID: c.Identity.APIKeyID,
	}
	// A Lambda authorizer's context is flat, so an object is a user pool's.
	claims, ok := c.Authorizer["claims"].(map[string]any)
	if !ok {
		id.Authorizer = c.Authorizer
		return id
	}
	id.Claims = make(map[string]string, len(claims))
	for name, value := range claims {
		if s, ok := value.(string); ok {
			id.Claims[name] = s
		}
	}
	return id
}

func fromV1(res *events.APIGatewayProxyResponse) *idemhttp.Response {
	return &idemhttp.Response{
		Status: res.StatusCode, Headers: res.Headers, MultiHeaders: res.MultiValueHeaders,
		Body: []byte(res.Body), Base64: res.IsBase64Encoded,
	}
}

func toV1(_ *events.APIGatewayProxyRequest, _ *events.APIGatewayProxyResponse,
	res *idemhttp.Response) events.APIGatewayProxyResponse {
	return events.APIGatewayProxyResponse{
		StatusCode: res.Status, Headers: res.Headers, MultiValueHeaders: res.MultiHeaders,
		Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
}

// FunctionURLHandler is a handler of a Lambda function URL with buffered
// responses (InvokeMode BUFFERED).
type FunctionURLHandler = func(context.Context,
	events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error)

// FunctionURL makes a handler of a function URL idempotent under the contract of
// package idemhttp. A function URL does not match routes: they are matched with the
// path, and [idemhttp.AnyRoute] gives only the operation. IAM's is the only identity
// that it verifies (AuthType AWS_IAM).
//
// Errors and mistakes are as with [HTTPAPI], but the answer to an error is 502.
func FunctionURL(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options,
	handler FunctionURLHandler) FunctionURLHandler {
	return gateway[events.LambdaFunctionURLRequest, events.LambdaFunctionURLResponse]{
		name: "FunctionURL", request: requestOfURL, from: fromURL, to: toURL, size: maxResponse,
	}.handler(engine, routes, tenant, o, handler)
}

func requestOfURL(e *events.LambdaFunctionURLRequest) *idemhttp.Request {
	r := &idemhttp.Request{
		Method: e.RequestContext.HTTP.Method,
		Path:   e.RawPath,
		Header: lines(e.Headers),
		Body:   bodyOf(e.Body, e.IsBase64Encoded),
		Source: e,
	}
	r.Query, r.RawQuery = queryOf(e.RawQueryString, e.QueryStringParameters)
	if a := e.RequestContext.Authorizer; a != nil && a.IAM != nil {
		r.Identity.AccountID, r.Identity.UserID = a.IAM.AccountID, a.IAM.UserID
	}
	return r
}

func fromURL(res *events.LambdaFunctionURLResponse) *idemhttp.Response {
	return &idemhttp.Response{
		Status: res.StatusCode, Headers: res.Headers, Cookies: res.Cookies,
		Body: []byte(res.Body), Base64: res.IsBase64Encoded,
	}
}

func toURL(_ *events.LambdaFunctionURLRequest, _ *events.LambdaFunctionURLResponse,
	res *idemhttp.Response) events.LambdaFunctionURLResponse {
	return events.LambdaFunctionURLResponse{
		StatusCode: res.Status, Headers: joined(res), Cookies: res.Cookies,
		Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
}

// albLimit is the balancer's default idle timeout. If a longer one is set, a wait ends
// earlier than necessary.
const albLimit = 60 * time.Second

// maxALBResponse is what a load balancer takes of a function
// (https://docs.aws.amazon.com/elasticloadbalancing/latest/application/lambda-functions.html: 1 MB).
const maxALBResponse = 1 << 20

// ALBHandler is a handler behind an Application Load Balancer.
type ALBHandler = func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error)

// ALB makes a handler behind an Application Load Balancer idempotent under the
// contract of package idemhttp. The balancer does not match routes: they are matched
// with the path, and [idemhttp.AnyRoute] gives only the operation. The event has no
// identity that the balancer has verified: the tenant is [idemhttp.SingleTenant] or a
// function of your own, which must verify what it uses.
//
// The event shows whether the target group has multi-value headers. The balancer reads
// only the header map of that mode, so the response's headers are put into that map. A
// target group without multi-value headers passes on only the last of repeated headers:
// a key that was sent twice with different values is not noticed. The handler's own
// status description is not recorded: a replay has the standard one.
//
// Errors and mistakes are as with [HTTPAPI], but the answer to an error is 502.
func ALB(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options,
	handler ALBHandler) ALBHandler {
	return gateway[events.ALBTargetGroupRequest, events.ALBTargetGroupResponse]{
		name: "ALB", request: requestOfALB, from: fromALB, to: toALB, limit: albLimit, size: maxALBResponse,
	}.handler(engine, routes, tenant, o, handler)
}

func requestOfALB(e *events.ALBTargetGroupRequest) *idemhttp.Request {
	r := &idemhttp.Request{
		Method: e.HTTPMethod,
		Path:   e.Path,
		Query:  map[string][]string{},
		Header: e.MultiValueHeaders,
		Body:   bodyOf(e.Body, e.IsBase64Encoded),
		Source: e,
	}
	if !hasMultiValues(e) {
		r.Header = lines(e.Headers)
	}
	query := e.MultiValueQueryStringParameters
	if len(query) == 0 {
		query = lines(e.QueryStringParameters)
	}
	// In order: two spellings of a name make one parameter.
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, value := range query[name] {
			addDecoded(r, name, value)
		}
	}
	return r
}

// hasMultiValues reports the target group's mode.
func hasMultiValues(e *events.ALBTargetGroupRequest) bool { return e.MultiValueHeaders != nil }

// addDecoded decodes a query parameter, which the balancer does not. A parameter that is
// not well-formed counts as it is.
func addDecoded(r *idemhttp.Request, name, value string) {
	n, err1 := url.QueryUnescape(name)
	v, err2 := url.QueryUnescape(value)
	if err1 != nil || err2 != nil {
		r.RawQuery += "&" + name + "=" + value
		return
	}
	r.Query[n] = append(r.Query[n], v)
}

func fromALB(res *events.ALBTargetGroupResponse) *idemhttp.Response {
	return &idemhttp.Response{
		Status: res.StatusCode, Headers: res.Headers, MultiHeaders: res.MultiValueHeaders,
		Body: []byte(res.Body), Base64: res.IsBase64Encoded,
	}
}

// toALB sets the mode's map, even if it is empty, and the status description: if one is
// missing, the balancer answers with 502.
func toALB(e *events.ALBTargetGroupRequest, given *events.ALBTargetGroupResponse,
	res *idemhttp.Response) events.ALBTargetGroupResponse {
	out := events.ALBTargetGroupResponse{
		StatusCode: res.Status, Headers: map[string]string{}, MultiValueHeaders: map[string][]string{},
		Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
	if hasMultiValues(e) {
		out.MultiValueHeaders = spread(res)
	} else if h := joined(res); h != nil {
		out.Headers = h
	}
	out.StatusDescription = strings.TrimSpace(fmt.Sprint(res.Status, " ", http.StatusText(res.Status)))
	if given.StatusCode == res.Status && given.StatusDescription != "" {
		out.StatusDescription = given.StatusDescription
	}
	return out
}

// withoutStage removes the stage from the path. Only the API's own endpoint has it there;
// a custom domain does not.
func withoutStage(path, stage, domain, api string) string {
	if stage == "" || stage == "$default" || api == "" || !strings.HasPrefix(domain, api+".") {
		return path
	}
	rest, ok := strings.CutPrefix(path, "/"+stage)
	switch {
	case ok && rest == "":
		return "/"
	case ok && rest[0] == '/':
		return rest
	}
	return path
}
