package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	// DefaultTimeout is the longest that an HTTP API waits for a function.
	DefaultTimeout = 30 * time.Second
	// MaxRequestBytes is API Gateway's limit on a request's body.
	MaxRequestBytes = 10 << 20
	// MaxEventBytes is Lambda's limit on an event.
	MaxEventBytes = 6 << 20
	// MaxResponseBytes is Lambda's limit on a function's answer.
	MaxResponseBytes = 6<<20 + 100
	// DefaultStage is where a REST API is deployed here.
	DefaultStage = "prod"
)

// Invoke runs a function with a JSON event and returns its JSON answer. An error
// is a function that failed; its text goes to Options.Report only. The context
// does not end with the client's connection.
type Invoke func(ctx context.Context, event []byte) ([]byte, error)

// Options of a gateway; nil and zero values mean the defaults. The functions may be
// called concurrently.
type Options struct {
	// Flavour is the service that the gateway stands for. Default: HTTPAPI.
	Flavour Flavour
	// Stage is the stage of an HTTP API or a REST API. Paths begin with it, as at
	// the API's own endpoint, but for "$default". Default: "$default" for HTTPAPI,
	// DefaultStage for RESTAPI.
	Stage string
	// BinaryMediaTypes of a REST API, such as "image/png", "image/*" or "*/*": a
	// request's body of such a Content-Type reaches the function as Base64, and the
	// Base64 of an answer is decoded for a client whose first Accept is such a type.
	// Without them all bodies are text, and Base64 goes to the client as it is.
	BinaryMediaTypes []string
	// MultiValueHeaders is the attribute of an ALB's target group.
	MultiValueHeaders bool
	// Claims stands for a JWT authorizer (HTTPAPI), a Cognito user pool's (RESTAPI)
	// or a listener's JWT verification (ALB, whose events have only the token itself). It
	// returns the claims of the caller, or false to answer 401. No claims and true mean no
	// authorizer in the event.
	Claims func(*http.Request) (claims map[string]string, ok bool)
	// IAM stands for IAM authorization of HTTPAPI, RESTAPI and FunctionURL: it
	// returns who signed the request, or false to answer 403. Nil means that there
	// is none (AuthType NONE of a function URL).
	IAM func(*http.Request) (signer Principal, ok bool)
	// Open are the routes that Claims and IAM are not asked about.
	Open []string
	// Timeout is how long the client waits for the function. Default, and at
	// most: HTTPAPI 30 s, RESTAPI 29 s, ALB 60 s, FunctionURL 15 min.
	Timeout time.Duration
	// Report, if set, gets the reason for an answer of the service itself: the function's
	// error, the mistake in its response, or context.DeadlineExceeded after a time-out.
	Report func(requestID string, err error)
}

// Principal is an IAM principal that signed a request.
type Principal struct {
	// AccountID is the account that it belongs to.
	AccountID string
	// UserID is its unique id; a role's is followed by ":" and the session's name.
	UserID string
	// ARN is its name.
	ARN string
}

func (o Options) withDefaults(t table) (Options, error) {
	limits, known := services[o.Flavour]
	if !known {
		return o, fmt.Errorf("gateway: Options.Flavour %d is none of HTTPAPI, RESTAPI, FunctionURL, ALB", o.Flavour)
	}
	switch {
	case o.Timeout < 0 || o.Timeout > limits.timeout:
		return o, fmt.Errorf("gateway: Options.Timeout %v is not in (0, %v]", o.Timeout, limits.timeout)
	case o.Flavour == RESTAPI && t.fallback != nil:
		return o, errors.New(`gateway: a REST API has no route $default; give it "ANY /{proxy+}" and "ANY /"`)
	case strings.ContainsAny(o.Stage, "/?#% ") || o.Stage == defaultRoute && o.Flavour == RESTAPI:
		return o, fmt.Errorf("gateway: Options.Stage %q cannot be a stage of this API; use a name such as %q",
			o.Stage, DefaultStage)
	case o.Flavour == FunctionURL && (o.Claims != nil || t.fallback == nil || len(t.routes) > 0):
		return o, errors.New(`gateway: a function URL has one function and no claims: give it the route "$default" alone, ` +
			`and no Options.Claims`)
	case o.IAM != nil && (o.Flavour == ALB || o.Claims != nil):
		return o,
			errors.New("gateway: Options.IAM is with a load balancer, which has none, or with Options.Claims: leave it out")
	}
	o.Timeout = cmp.Or(o.Timeout, limits.timeout)
	switch o.Flavour {
	case HTTPAPI:
		o.Stage = cmp.Or(o.Stage, defaultRoute)
	case RESTAPI:
		o.Stage = cmp.Or(o.Stage, DefaultStage)
	}
	return o, nil
}

// What events tell of the API.
const accountID, apiID = "123456789012", "local"

// domain is what events tell of the API's own domain.
func (o Options) domain() string {
	if o.Flavour == FunctionURL {
		return apiID + ".lambda-url.us-east-1.on.aws"
	}
	return apiID + ".execute-api.us-east-1.amazonaws.com"
}

// deployed removes the stage from a path; false if the path is not under it.
func (o Options) deployed(path string) (string, bool) {
	if o.Stage == "" || o.Stage == defaultRoute {
		return path, true
	}
	rest, ok := strings.CutPrefix(path, "/"+o.Stage)
	return rest, ok && strings.HasPrefix(rest, "/")
}

// binary reports whether a header's first media type is among the binary ones.
func (o Options) binary(header string) bool {
	first, _, _ := strings.Cut(header, ",")
	media, _, _ := mime.ParseMediaType(first) // empty: it is none
	return slices.ContainsFunc(o.BinaryMediaTypes, func(want string) bool {
		matches, _ := path.Match(strings.ToLower(want), media) // a bad pattern matches nothing
		return matches || want == "*/*"
	})
}
