package idemlambda

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
)

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
// An error of the handler reaches the runtime as the handler gave it; the API then answers
// with 502.
// That of an interrupted or unreadable step does not: the client gets 409 or 503 with its code,
// as [idemhttp.Contract.Serve] says. A mistake in the set-up panics, see the package's
// documentation.
func RESTAPI(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options, handler RESTAPIHandler) RESTAPIHandler {
	return gateway[events.APIGatewayProxyRequest, events.APIGatewayProxyResponse]{
		name: "RESTAPI", request: requestOfV1, from: fromV1, to: toV1, limit: restAPILimit,
		received: func(e *events.APIGatewayProxyRequest) int64 { return e.RequestContext.RequestTimeEpoch },
	}.handler(engine, routes, tenant, o, handler)
}

func requestOfV1(e *events.APIGatewayProxyRequest) *idemhttp.Request {
	c := &e.RequestContext
	r := &idemhttp.Request{
		Method:         e.HTTPMethod,
		Route:          e.Resource,
		Stage:          c.Stage,
		PathParameters: e.PathParameters,
		Query:          e.MultiValueQueryStringParameters,
		Header:         e.MultiValueHeaders,
		Body:           bodyOf(e.Body, e.IsBase64Encoded),
		Source:         e,
	}
	if r.Method == "" {
		r.Method = c.HTTPMethod
	}
	if r.Route == "" {
		r.Route = c.ResourcePath
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

func toV1(_ *events.APIGatewayProxyRequest, _ *events.APIGatewayProxyResponse, res *idemhttp.Response) events.APIGatewayProxyResponse {
	return events.APIGatewayProxyResponse{
		StatusCode: res.Status, Headers: res.Headers, MultiValueHeaders: res.MultiHeaders,
		Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
}
