package front

import (
	"fmt"
	"net/http"
	"time"
)

// Flavour is the service that a front stands for.
type Flavour int

// The flavours; the zero value is an HTTP API with payload format 2.0.
const (
	HTTPAPI     Flavour = iota
	RESTAPI             // API Gateway REST API, stage prod, no binary media types
	FunctionURL         // Lambda function URL, buffered, AuthType NONE
	ALB                 // Application Load Balancer
)

// refusal is why the service itself answers.
type refusal int

const (
	noRoute refusal = iota
	unauthorized
	tooLarge
	badRequest
	failed
	timedOut
)

// service is what the flavours differ in besides events and responses.
type service struct {
	timeout  time.Duration // default and longest
	request  int64         // largest body, bytes
	answer   int           // largest answer of the function, bytes
	idHeader string        // carries the request id; empty: none does
	refusals map[refusal]response
}

const mega = 1 << 20

var services = map[Flavour]service{
	HTTPAPI: {DefaultTimeout, MaxRequestBytes, MaxResponseBytes, "Apigw-Requestid", map[refusal]response{
		noRoute: message(404, "Not Found"), unauthorized: message(401, "Unauthorized"),
		tooLarge: message(413, "Request Entity Too Large"), badRequest: message(400, "Bad Request"),
		failed: message(500, "Internal Server Error"), timedOut: message(503, "Service Unavailable"),
	}},
	RESTAPI: {29 * time.Second, MaxRequestBytes, MaxResponseBytes, "X-Amzn-Requestid", map[refusal]response{
		noRoute: message(403, "Missing Authentication Token"), unauthorized: message(401, "Unauthorized"),
		tooLarge: message(413, "Request Too Long"), badRequest: message(400, "Bad Request"),
		failed: message(502, "Internal server error"), timedOut: message(504, "Endpoint request timed out"),
	}},
	FunctionURL: {15 * time.Minute, 6 * mega, MaxResponseBytes, "X-Amzn-Requestid", map[refusal]response{
		noRoute: plain(404), tooLarge: plain(413), badRequest: plain(400),
		failed: text(502, "Internal Server Error"), timedOut: text(502, "Internal Server Error"),
	}},
	ALB: {60 * time.Second, mega, mega, "", map[refusal]response{
		noRoute: plain(404), unauthorized: page(401, "Authorization Required"), tooLarge: page(413, "Request Entity Too Large"),
		badRequest: page(400, "Bad Request"), failed: page(502, "Bad Gateway"), timedOut: page(504, "Gateway Time-out"),
	}},
}

func plain(status int) response { return text(status, http.StatusText(status)) }

func text(status int, body string) response {
	return response{status, http.Header{"Content-Type": {"text/plain"}}, []byte(body)}
}

// page looks like a load balancer's own.
func page(status int, title string) response {
	body := fmt.Sprintf("<html>\r\n<head><title>%d %s</title></head>\r\n<body>\r\n<center><h1>%[1]d %[2]s</h1></center>\r\n</body>\r\n</html>\r\n", status, title)
	return response{status, http.Header{"Content-Type": {"text/html"}, "Server": {"awselb/2.0"}}, []byte(body)}
}
