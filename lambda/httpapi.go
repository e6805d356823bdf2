package idemlambda

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
)

// HTTPAPIHandler is a handler of API Gateway's HTTP APIs, payload format 2.0.
type HTTPAPIHandler = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// HTTPAPI makes a handler of an HTTP API idempotent under the contract of package
// idemhttp. The routes are matched with the event's route key; under $default and
// where a template is not declared, with its path (without the stage that the
// API's own endpoint puts in front). All header values are those of one line: the
// API joins repeats with commas.
//
// An error of the handler reaches the runtime as the handler gave it; the API then
// answers with 500. A mistake in the set-up panics, see the package's
// documentation.
func HTTPAPI(engine *idem.Engine, routes idemhttp.Routes, o *idemhttp.Options, handler HTTPAPIHandler) HTTPAPIHandler {
	contract, err := idemhttp.New(engine, routes, o)
	if err != nil {
		panic(err)
	}
	if handler == nil {
		panic(&idem.ConfigError{What: "idemlambda.HTTPAPI", Problem: "the handler is nil"})
	}
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		res, err := contract.Serve(withKillTime(ctx), requestOfV2(&event), func(ctx context.Context) (*idemhttp.Response, error) {
			res, err := handler(ctx, event)
			if err != nil && res.StatusCode == 0 {
				return nil, recordable(err)
			}
			return fromV2(res), recordable(err)
		})
		if err != nil {
			return events.APIGatewayV2HTTPResponse{}, fromHandler(err)
		}
		return toV2(res), nil
	}
}

func requestOfV2(e *events.APIGatewayV2HTTPRequest) *idemhttp.Request {
	r := &idemhttp.Request{
		Method:         e.RequestContext.HTTP.Method,
		Path:           pathOfV2(e),
		PathParameters: e.PathParameters,
		Query:          queryOfV2(e),
		Header:         make(map[string][]string, len(e.Headers)),
		Body:           bodyOf(e.Body, e.IsBase64Encoded),
		Source:         e,
	}
	// "POST /payments/{id}", "ANY /payments" or "$default".
	method, template, ok := strings.Cut(e.RouteKey, " ")
	if ok {
		r.Route = template
	}
	if r.Method == "" && ok && method != "ANY" {
		r.Method = method
	}
	lines := make([]string, 0, len(e.Headers))
	for name, value := range e.Headers {
		lines = append(lines, value)
		n := len(lines)
		r.Header[name] = lines[n-1 : n : n]
	}
	if a := e.RequestContext.Authorizer; a != nil {
		r.Identity.Authorizer = a.Lambda
		if a.JWT != nil {
			r.Identity.Claims = a.JWT.Claims
		}
		if a.IAM != nil {
			r.Identity.AccountID, r.Identity.UserID = a.IAM.AccountID, a.IAM.UserID
		}
	}
	return r
}

// pathOfV2 is the path without the stage, which only the API's own endpoint
// shows: a custom domain maps it away.
func pathOfV2(e *events.APIGatewayV2HTTPRequest) string {
	path, c := e.RawPath, &e.RequestContext
	if c.Stage == "" || c.Stage == "$default" || c.APIID == "" || !strings.HasPrefix(c.DomainName, c.APIID+".") {
		return path
	}
	rest, ok := strings.CutPrefix(path, "/"+c.Stage)
	switch {
	case ok && rest == "":
		return "/"
	case ok && rest[0] == '/':
		return rest
	}
	return path
}

// queryOfV2 reads the raw query string, since the event's map joins repeats with
// commas that values may hold too. A query that is not well-formed counts as it is.
func queryOfV2(e *events.APIGatewayV2HTTPRequest) map[string][]string {
	if e.RawQueryString == "" {
		if len(e.QueryStringParameters) == 0 {
			return nil
		}
		q := make(map[string][]string, len(e.QueryStringParameters))
		for k, v := range e.QueryStringParameters {
			q[k] = []string{v}
		}
		return q
	}
	q, err := url.ParseQuery(e.RawQueryString)
	if err != nil {
		return map[string][]string{"": {e.RawQueryString}}
	}
	return q
}

// bodyOf takes off the Base64 that the front has put on.
func bodyOf(body string, isBase64 bool) []byte {
	if isBase64 {
		if raw, err := base64.StdEncoding.DecodeString(body); err == nil {
			return raw
		}
	}
	return []byte(body)
}

func fromV2(res events.APIGatewayV2HTTPResponse) *idemhttp.Response {
	return &idemhttp.Response{
		Status: res.StatusCode, Headers: res.Headers, MultiHeaders: res.MultiValueHeaders,
		Cookies: res.Cookies, Body: []byte(res.Body), Base64: res.IsBase64Encoded,
	}
}

func toV2(res *idemhttp.Response) events.APIGatewayV2HTTPResponse {
	return events.APIGatewayV2HTTPResponse{
		StatusCode: res.Status, Headers: res.Headers, MultiValueHeaders: res.MultiHeaders,
		Cookies: res.Cookies, Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
}
