// Package gateway serves Lambda functions on this machine over HTTP, like an API Gateway
// HTTP API with payload format 2.0: an HTTP request becomes an event, and the function's
// answer becomes the response.
//
//	handler, err := gateway.New(map[string]gateway.Invoke{
//		"POST /payments":     charge,
//		"GET /payments/{id}": lookUp,
//	}, nil)
//
// An Invoke may be a method of lambda.NewHandler's handler, in the same process: see the example.
//
// # The event
//
// Header names are in lower case, repeated headers and query parameters are joined with
// commas, and cookies are a separate list. rawPath is decoded, rawQueryString is not. A
// body is text if its media type is text/*, application/json, application/xml or
// application/javascript, and otherwise base64, even without a media type.
//
// # The response
//
// JSON without a statusCode member is the body of a 200 of type
// application/json; a JSON string is unquoted. Cookies become Set-Cookie
// headers. multiValueHeaders are ignored: format 2.0 does not have them.
//
//	no route                              404 {"message":"Not Found"}
//	an Authorizer refuses: Unauthorized   401 {"message":"Unauthorized"}
//	an Authorizer refuses: Forbidden      403 {"message":"Forbidden"}
//	headers over 10,240 bytes             431 {"message":"Request Header Fields Too Large"}
//	body over 10 MB, or event over 6 MB   413 {"message":"Request Entity Too Large"}
//	function error, malformed response,
//	response over 6 MB, Authorizer error  500 {"message":"Internal Server Error"}
//	no answer within Options.Timeout      503 {"message":"Service Unavailable"}
//
// A function keeps running after a 503, and after its client has disconnected.
//
// # Other services
//
// Options.Flavour makes it something else:
//
//   - A REST API: payload format 1.0, 29 s, its stage before every path, 502 and 504 with
//     its own texts, and text bodies except for Options.BinaryMediaTypes.
//   - A function URL: 6 MB in, 15 min, 403 {"Message":"Forbidden"}, 502 "Internal Server
//     Error".
//   - An Application Load Balancer: single or multi-value headers; path and query not
//     decoded; Base64 also with a Content-Encoding; 1 MB each way, 64 K of headers;
//     HTML pages with 400, 401, 413, 502 and 504. If the function fails or times out, the
//     answer is 502; if the balancer has waited too long, it is 504. Its Tokens are a
//     listener's JWT verification, which passes on the token and puts no claims into the
//     event.
//
// # What is not imitated
//
// Payload format 1.0 of HTTP APIs, stage variables, custom domains and base paths, CORS,
// throttling, parameter mapping, mutual TLS, access logs, a balancer's limit of one
// line, the scopes of a JWT authorizer, the cache and the time limit of one that is a
// Function, a balancer's own login (X-Amzn-Oidc-Data), and the service's truncation of a
// path at an escaped question mark. Who has signed a request is up to the Authorizer.
//
// Source: API Gateway developer guide, "Create AWS Lambda proxy integrations for
// HTTP APIs", "Create routes for HTTP APIs", "Quotas for configuring and running an
// HTTP API", "… a REST API", "Gateway response types", "Binary media types for REST
// APIs", "Return binary media from a Lambda proxy integration", "Handling Lambda errors
// with an API Gateway API", "Use API Gateway Lambda authorizers", "Control access to HTTP
// APIs with AWS Lambda authorizers"; Lambda developer guide, "Lambda quotas", "Invoking Lambda
// function URLs"; "Use Lambda functions as targets of an Application Load Balancer",
// "Verify JWTs using an Application Load Balancer", "Troubleshoot your Application Load
// Balancers". What the guides leave open (the media types, the decoded path, some
// texts) follows published captures of the services.
package gateway
