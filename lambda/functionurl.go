package idemlambda

import (
	"context"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
)

// FunctionURLHandler is a handler of a Lambda function URL with buffered
// responses (InvokeMode BUFFERED).
type FunctionURLHandler = func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error)

// FunctionURL makes a handler of a function URL idempotent under the contract of
// package idemhttp. A function URL does not match routes: they are matched with the
// path, and [idemhttp.AnyRoute] gives only the operation. IAM's is the only identity
// that it verifies (AuthType AWS_IAM).
//
// An error of the handler reaches the runtime as the handler gave it; the function URL then
// answers with 502.
// That of an interrupted or unreadable step does not: the client gets 409 or 503 with its code,
// as [idemhttp.Contract.Serve] says. A mistake in the set-up panics, see the package's
// documentation.
func FunctionURL(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options, handler FunctionURLHandler) FunctionURLHandler {
	return gateway[events.LambdaFunctionURLRequest, events.LambdaFunctionURLResponse]{
		name: "FunctionURL", request: requestOfURL, from: fromURL, to: toURL,
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

func toURL(_ *events.LambdaFunctionURLRequest, _ *events.LambdaFunctionURLResponse, res *idemhttp.Response) events.LambdaFunctionURLResponse {
	return events.LambdaFunctionURLResponse{
		StatusCode: res.Status, Headers: joined(res), Cookies: res.Cookies,
		Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
}
