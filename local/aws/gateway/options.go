package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/iam"
)

const (
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
	// APIID is what events and an authorizer's ARNs call the API. Default: "local". The account is iam.Account.
	APIID string
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
	// Authorize decides who may send a request. Default: all callers may, and events have no authorizer.
	Authorize Authorizer
	// Timeout is how long the client waits for the function. Default: what it is on AWS at most, HTTPAPI 30 s,
	// RESTAPI 29 s, ALB 60 s, FunctionURL 15 min. A longer one is for debugging.
	Timeout time.Duration
	// Report, if set, gets the reason for an answer of the service itself: the error of Authorize, whose
	// request has no id, the function's error, the mistake in its response, or context.DeadlineExceeded after a
	// time-out.
	Report func(requestID string, err error)
}

func (o Options) withDefaults(t table) (Options, error) {
	limits, known := services[o.Flavour]
	if !known {
		return o, fmt.Errorf("gateway: Options.Flavour %d is none of HTTPAPI, RESTAPI, FunctionURL, ALB", o.Flavour)
	}
	switch {
	case o.Timeout < 0:
		return o, fmt.Errorf("gateway: Options.Timeout %v is negative", o.Timeout)
	case o.Flavour == RESTAPI && t.fallback != nil:
		return o, errors.New(`gateway: a REST API has no route $default; give it "ANY /{proxy+}" and "ANY /"`)
	case strings.ContainsAny(o.Stage, "/?#% ") || o.Stage == defaultRoute && o.Flavour == RESTAPI:
		return o, fmt.Errorf("gateway: Options.Stage %q cannot be a stage of this API; use a name such as %q",
			o.Stage, DefaultStage)
	case o.Flavour == FunctionURL && (t.fallback == nil || len(t.routes) > 0):
		return o, errors.New(`gateway: a function URL has one function: give it the route "$default" alone`)
	}
	o.APIID, o.Timeout = cmp.Or(o.APIID, "local"), cmp.Or(o.Timeout, limits.timeout)
	switch o.Flavour {
	case HTTPAPI:
		o.Stage = cmp.Or(o.Stage, defaultRoute)
	case RESTAPI:
		o.Stage = cmp.Or(o.Stage, DefaultStage)
	}
	return o, nil
}

// domain is what events tell of the API's own domain.
func (o Options) domain() string {
	if o.Flavour == FunctionURL {
		return o.APIID + ".lambda-url." + iam.Region + ".on.aws"
	}
	return o.APIID + ".execute-api." + iam.Region + ".amazonaws.com"
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
