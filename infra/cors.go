package infra

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/jsii-runtime-go"
)

// CORS says which pages of other origins may call an API from a browser
// (https://fetch.spec.whatwg.org/#http-cors-protocol). API Gateway answers preflight
// requests without authorizer and function, for the methods of the routes and the headers
// of idempotent requests.
//
// An HTTP API also adds the CORS headers of the responses, and removes those of the
// function (https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-cors.html).
// A REST API does neither: there the function must add Access-Control-Allow-Origin and
// Access-Control-Expose-Headers to each response, including refusals. Otherwise pages
// cannot read them.
type CORS struct {
	// Origins of the pages, such as https://shop.example. A single "*" means all origins.
	// Required.
	Origins []string
	// Headers are further request headers, besides Idempotency-Key, Content-Type and
	// those of the authorizers.
	Headers []string
	// Expose are further response headers that pages can read, besides
	// Idempotency-Replayed, Idempotent-Replayed, Idempotency-Expires, Retry-After and
	// Location. For an HTTP API.
	Expose []string
	// Credentials lets pages send cookies. Origins must then be named.
	Credentials bool
	// MaxAge is how long a browser caches the answer, at most a day. Zero means the
	// browser's default, 5 seconds.
	MaxAge time.Duration

	methods map[string][]string // by path
	all     []string
}

var (
	// requestHeaders are those that idempotent requests have, and those by which the
	// authorizers know who sends them.
	requestHeaders = []string{"Idempotency-Key", "Content-Type", "Authorization", "X-Api-Key", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256"}
	// responseHeaders are those that clients read by the contract.
	responseHeaders = []string{"Idempotency-Replayed", "Idempotent-Replayed", "Idempotency-Expires", "Retry-After", "Location"}
)

// setDefaults sets the defaults. Unusable values are left out.
func (c *CORS) setDefaults(routes []parsedRoute, flavour Flavour, problems []string) (*CORS, []string) {
	if c == nil {
		return nil, problems
	}
	wrong := len(problems)
	invalid := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	s := *c
	if len(s.Origins) == 0 {
		invalid("CORS has no Origins: name those of the pages, such as https://shop.example")
	}
	for _, o := range s.Origins {
		_, host, ok := strings.Cut(o, "://")
		switch {
		case o == "*" && len(s.Origins) > 1:
			invalid("CORS.Origins has \"*\" beside others: leave the others out")
		case o == "*" && s.Credentials:
			invalid("CORS.Credentials takes no origin \"*\": name the origins")
		case o != "*" && (!ok || host == "" || strings.ContainsAny(host, "/*")):
			invalid("CORS.Origins has %q: write an origin like https://shop.example, without a path", o)
		}
	}
	for _, h := range slices.Concat(s.Headers, s.Expose) {
		if !token.MatchString(h) {
			invalid("CORS has the header %q: name headers, such as X-Request-Id", h)
		}
	}
	if s.MaxAge < 0 || s.MaxAge > day || s.MaxAge%time.Second != 0 {
		invalid("CORS.MaxAge is %v: use whole seconds up to %v, or zero for the browser's own", s.MaxAge, day)
	}
	if flavour == RESTAPI && len(s.Expose) > 0 {
		invalid("CORS.Expose is for an HTTP API: before a REST API the function sends Access-Control-Expose-Headers itself")
	}
	s.methods = map[string][]string{}
	for _, r := range routes {
		if r.method == "OPTIONS" {
			invalid("the route %q is for preflight requests, which CORS answers: leave one of them out", r.Route.Route)
		}
		s.methods[r.path] = append(s.methods[r.path], r.method)
		if !slices.Contains(s.all, r.method) {
			s.all = append(s.all, r.method)
		}
	}
	if len(problems) > wrong {
		return nil, problems
	}
	s.Headers = union(requestHeaders, s.Headers)
	s.Expose = union(responseHeaders, s.Expose)
	return &s, problems
}

// union adds the names that are not in the list yet; case does not count.
func union(names, more []string) []string {
	all := slices.Clone(names)
	for _, m := range more {
		if !slices.ContainsFunc(all, func(n string) bool { return strings.EqualFold(n, m) }) {
			all = append(all, m)
		}
	}
	return all
}

func (c *CORS) http() *awsapigatewayv2.CorsPreflightOptions {
	if c == nil {
		return nil
	}
	methods := make([]awsapigatewayv2.CorsHttpMethod, len(c.all))
	for i, m := range c.all {
		methods[i] = awsapigatewayv2.CorsHttpMethod(m)
	}
	in := &awsapigatewayv2.CorsPreflightOptions{
		AllowOrigins: jsii.Strings(c.Origins...), AllowMethods: &methods, AllowHeaders: jsii.Strings(c.Headers...),
		ExposeHeaders: jsii.Strings(c.Expose...), AllowCredentials: jsii.Bool(c.Credentials),
	}
	if c.MaxAge > 0 {
		in.MaxAge = duration(c.MaxAge)
	}
	return in
}

// rest answers the preflight requests of each path. It also lets pages read API Gateway's
// own refusals if there is one origin: a gateway response is the same for all origins.
func (c *CORS) rest(a *API) {
	if c == nil {
		return
	}
	done := map[string]bool{}
	for _, r := range a.routes {
		if done[r.path] {
			continue
		}
		done[r.path] = true
		in := &awsapigateway.CorsOptions{
			AllowOrigins: jsii.Strings(c.Origins...), AllowMethods: jsii.Strings(c.methods[r.path]...), AllowHeaders: jsii.Strings(c.Headers...),
			AllowCredentials: jsii.Bool(c.Credentials),
		}
		if c.MaxAge > 0 {
			in.MaxAge = duration(c.MaxAge)
		}
		a.REST.Root().ResourceForPath(&r.path).AddCorsPreflight(in)
	}
	if len(c.Origins) > 1 {
		return
	}
	headers := map[string]*string{"Access-Control-Allow-Origin": jsii.String("'" + c.Origins[0] + "'")}
	if c.Credentials {
		headers["Access-Control-Allow-Credentials"] = jsii.String("'true'")
	}
	for _, own := range []struct {
		id   string
		kind awsapigateway.ResponseType
	}{{"Refused", awsapigateway.ResponseType_DEFAULT_4XX()}, {"Failed", awsapigateway.ResponseType_DEFAULT_5XX()}} {
		a.REST.AddGatewayResponse(&own.id, &awsapigateway.GatewayResponseOptions{Type: own.kind, ResponseHeaders: &headers})
	}
}
