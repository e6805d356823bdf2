// Package front puts HTTP in front of Lambda functions on this machine, the way
// an API Gateway HTTP API with payload format 2.0 does: a real HTTP request
// becomes an event, the function's answer becomes the response.
//
//	handler, err := front.New(map[string]front.Invoke{
//		"POST /payments":     charge,
//		"GET /payments/{id}": lookUp,
//	}, nil)
//
// # The event
//
// Header names are lower-cased, repeated headers and query parameters joined
// with commas, cookies apart. rawPath is decoded, rawQueryString is not. A body
// is text if its media type is text/*, application/json, application/xml or
// application/javascript, and base64 otherwise, also without a media type.
//
// # The response
//
// JSON without a statusCode member is the body of a 200 of type
// application/json; a JSON string is unquoted. Cookies become Set-Cookie
// headers. multiValueHeaders are ignored: format 2.0 does not have them.
//
//	no route                              404 {"message":"Not Found"}
//	Options.Claims refuses                401 {"message":"Unauthorized"}
//	body over 10 MB                       413 {"message":"Request Entity Too Large"}
//	function error, malformed response,
//	response over 6 MB                    500 {"message":"Internal Server Error"}
//	no answer within Options.Timeout      503 {"message":"Service Unavailable"}
//
// A function runs on after a 503, and after its client has gone.
//
// # Other services
//
// Options.Flavour makes it a REST API (payload format 1.0 with its 29 s, 502 and 504;
// stage prod; bodies are text), a function URL (6 MB in; 502 "Internal Server Error" as
// text) or an Application Load Balancer (single or multi-value headers; path and
// query not decoded; base64 also with a Content-Encoding; 1 MB each way; pages of
// HTML with 413, 502 and 504). A balancer's Claims only admit: its events have none.
//
// # What is not imitated
//
// Binary media types, payload format 1.0 of HTTP APIs, stages other than $default, stage variables, custom
// domains and base paths, CORS, throttling, parameter mapping, mutual TLS,
// access logs, authorizers other than JWT (whose claims come from a hook, such as
// Issuer.Claims; scopes are not looked at), and that the service cuts a path off at an
// escaped question mark.
//
// Source: API Gateway developer guide, "Create AWS Lambda proxy integrations for
// HTTP APIs", "Create routes for HTTP APIs", "Quotas for HTTP APIs"; what the
// guide leaves open (the media types, the decoded path) follows published
// captures of the service.
package front
