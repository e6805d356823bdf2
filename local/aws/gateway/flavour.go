package gateway

import (
	"fmt"
	"net/http"
	"time"
)

// Flavour is the service that a gateway stands for.
type Flavour int

// The flavours; the zero value is an HTTP API with payload format 2.0.
const (
	HTTPAPI     Flavour = iota
	RESTAPI             // API Gateway REST API
	FunctionURL         // Lambda function URL, buffered
	ALB                 // Application Load Balancer
)

// refusal is why the service itself answers.
type refusal int

const (
	noRoute refusal = iota
	unauthorized
	forbidden
	headTooLarge
	tooLarge
	eventTooLarge
	badRequest
	failed
	timedOut
	misauthorized    // by an authorizer that failed
	denied           // by the policy of an authorizer, which allows something else
	deniedExplicitly // by the policy of an authorizer, in so many words
)

// service has the differences between the flavours.
type service struct {
	event func(*Handler, Request) (event any, requestID string)
	parse func(*Handler, Request, []byte) (response, error)

	timeout  time.Duration // default and longest
	head     int           // most bytes of the request line and all headers' values
	request  int64         // largest body, bytes
	answer   int           // largest answer of the function, bytes
	idHeader string        // carries the request id; empty: none does
	refusals map[refusal]response
}

const mega = 1 << 20

// The limits are the quotas of the API Gateway developer guide (HTTP API: 10,240 bytes
// of request line and header values, 10 MB, 30 s; REST API: 10,240 bytes, 10 MB, 29 s),
// of the Lambda developer guide (6 MB each way, 1 MB of headers, 15 min) and of the
// load balancers' guide (64 K of headers, 1 MB each way, 60 s idle).
//
// Statuses are those of "Gateway response types", "Troubleshoot your Application Load
// Balancers" and the Lambda guide's "Monitoring function URLs". The bodies are those that
// the services were seen to send. For those that are not known (431, and 413 of HTTP APIs
// and function URLs) the status' phrase is used in the service's usual form. A REST API has
// two answers to a large body: its own limit is text, Lambda's is JSON
// (https://github.com/koki-develop/lgtm-generator/issues/10).
var services = map[Flavour]service{
	HTTPAPI: {(*Handler).event, (*Handler).parseResponse,
		30 * time.Second, 10240, 10 * mega, MaxResponseBytes, "Apigw-Requestid",
		map[refusal]response{
			noRoute: message(404, "Not Found"), unauthorized: message(401, "Unauthorized"), forbidden: message(403, "Forbidden"),
			headTooLarge: message(431, "Request Header Fields Too Large"), tooLarge: message(413, "Request Entity Too Large"),
			eventTooLarge: message(413, "Request Entity Too Large"), badRequest: message(400, "Bad Request"),
			failed: message(500, "Internal Server Error"), timedOut: message(503, "Service Unavailable"),
			denied: message(403, "Forbidden"), deniedExplicitly: message(403, "Forbidden"),
		}},
	RESTAPI: {(*Handler).restEvent, (*Handler).parseREST,
		29 * time.Second, 10240, 10 * mega, MaxResponseBytes, "X-Amzn-Requestid",
		map[refusal]response{
			noRoute: message(403, "Missing Authentication Token"), unauthorized: message(401, "Unauthorized"),
			forbidden:    message(403, "Missing Authentication Token"),
			headTooLarge: message(431, "Request Header Fields Too Large"),
			tooLarge: {413, http.Header{"Content-Type": {"text; charset=utf-8"}},
				[]byte("HTTP content length exceeded 10485760 bytes.")},
			eventTooLarge: spaced(413, "Request Too Long"), badRequest: message(400, "Bad Request"),
			failed: spaced(502, "Internal server error"), timedOut: spaced(504, "Endpoint request timed out"),
			misauthorized:    {500, http.Header{"Content-Type": {"application/json"}}, []byte(`{"message":null}`)},
			denied:           userIsNotAuthorized(""),
			deniedExplicitly: userIsNotAuthorized(" with an explicit deny"),
		}},
	FunctionURL: {(*Handler).event, (*Handler).parseResponse,
		15 * time.Minute, mega, 6 * mega, MaxResponseBytes, "X-Amzn-Requestid",
		map[refusal]response{
			forbidden: {403, http.Header{"Content-Type": {"application/json"}, "X-Amzn-Errortype": {"AccessDeniedException"}},
				[]byte(`{"Message":"Forbidden"}`)},
			headTooLarge: plain(431), tooLarge: plain(413), eventTooLarge: plain(413), badRequest: plain(400),
			failed: internal, timedOut: internal,
		}},
	ALB: {(*Handler).albEvent, (*Handler).parseALB,
		60 * time.Second, 64 << 10, mega, mega, "", map[refusal]response{
			noRoute: plain(404), unauthorized: page(401, "Authorization Required"), headTooLarge: page(400, "Bad Request"),
			tooLarge: page(413, "Request Entity Too Large"), eventTooLarge: page(413, "Request Entity Too Large"),
			badRequest: page(400, "Bad Request"), failed: page(502, "Bad Gateway"), timedOut: page(504, "Gateway Time-out"),
		}},
}

// internal is a function URL's answer if the function has failed.
var internal = response{502, http.Header{"Content-Type": {"application/json"}}, []byte("Internal Server Error")}

// headSize is the size of the request line and all headers' values.
func headSize(r *http.Request) int {
	size := len(r.Method) + len(r.RequestURI) + len(r.Proto) + 2 + len(r.Host)
	for _, list := range r.Header {
		for _, value := range list {
			size += len(value)
		}
	}
	return size
}

func userIsNotAuthorized(how string) response {
	return response{403, http.Header{"Content-Type": {"application/json"}},
		[]byte(`{"Message":"User is not authorized to access this resource` + how + `"}`)}
}

func plain(status int) response {
	return response{status, http.Header{"Content-Type": {"text/plain"}}, []byte(http.StatusText(status))}
}

// spaced is a message in a REST API's spelling for integrations.
func spaced(status int, text string) response {
	return response{status, http.Header{"Content-Type": {"application/json"}}, []byte(`{"message": "` + text + `"}`)}
}

// page looks like a load balancer's own.
func page(status int, title string) response {
	body := fmt.Sprintf("<html>\r\n<head><title>%d %s</title></head>\r\n<body>\r\n<center><h1>%[1]d "+
		"%[2]s</h1></center>\r\n</body>\r\n</html>\r\n", status, title)
	return response{status, http.Header{"Content-Type": {"text/html"}, "Server": {"awselb/2.0"}}, []byte(body)}
}
