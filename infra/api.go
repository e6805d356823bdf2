package infra

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Flavour is a kind of API Gateway.
type Flavour string

// The two flavours, and how long each waits for its function at most.
const (
	// HTTPAPI sends payload 2.0, for idemlambda.HTTPAPI.
	HTTPAPI Flavour = "http"
	// RESTAPI sends payload 1.0, for idemlambda.RESTAPI; it has usage plans and WAF.
	RESTAPI Flavour = "rest"

	HTTPAPILimit = 30 * time.Second
	RESTAPILimit = 29 * time.Second
	// MaxRESTAPILimit is the longest time of a REST API whose account has the quota for it.
	MaxRESTAPILimit = 15 * time.Minute
)

// Defaults of an API's throttling.
const (
	DefaultRate  = 100
	DefaultBurst = 200
)

// Route is a method and a path that lead to the function.
type Route struct {
	// Route is the route as in the library, such as "POST /payments/{id}".
	Route string
	// Rate and Burst throttle this route alone: requests a second, and at once.
	// Zero means those of the API.
	Rate  float64
	Burst int
	// Scopes that a token needs, any one of them. For a JWT authorizer.
	Scopes []string
}

// APIProps of an API. Routes and Authorizer are required.
type APIProps struct {
	// Flavour of the API. Empty means HTTPAPI. The function must be written for it.
	Flavour Flavour
	// Name of the API. Empty means its id.
	Name string
	// Routes that lead to the function; everything else is 404.
	Routes []Route
	// Authorizer says who may call.
	Authorizer Authorizer
	// CORS lets pages of other origins call the API from a browser. Nil means none.
	CORS *CORS
	// Limit is how long the API waits for the function. Zero means [HTTPAPILimit] or
	// [RESTAPILimit]. A REST API, which is Regional here, can wait longer, up to
	// [MaxRESTAPILimit], after AWS has raised the account's quota "Maximum integration
	// timeout in milliseconds"; without that CloudFormation fails
	// (https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html). The
	// library itself lets a concurrent duplicate wait no longer than [RESTAPILimit].
	// Streamed responses may take longer too, but the library does not record them.
	Limit time.Duration
	// Rate and Burst throttle the whole stage: requests a second, and at once. Zero
	// means [DefaultRate] and [DefaultBurst].
	Rate  float64
	Burst int
	// LogRetention of the access log. Empty means a month.
	LogRetention awslogs.RetentionDays

	// UsagePlan demands API keys and counts by them. For a REST API.
	UsagePlan *UsagePlan
	// WebACL is the ARN of a WAF web ACL to put in front. For a REST API.
	WebACL string
	// HasLogRole says that the account already lets API Gateway write logs. Without
	// it the stack changes that setting, which is one for the account and region. For a
	// REST API.
	HasLogRole bool
}

// UsagePlan says who has an API key, and limits the requests of each key.
type UsagePlan struct {
	// Keys are the names of the keys to create.
	Keys []string
	// Rate and Burst bound each key: requests a second, and at once. Zero means
	// those of the API.
	Rate  float64
	Burst int
	// Daily bounds a key's requests a day. Zero means no bound.
	Daily int
}

// API is an API Gateway in front of a function, with an access log, throttling
// and an authorizer. The access log has no keys and no bodies.
type API struct {
	constructs.Construct
	// HTTP is the API if its flavour is HTTPAPI, else nil.
	HTTP awsapigatewayv2.HttpApi
	// REST is the API if its flavour is RESTAPI, else nil.
	REST awsapigateway.RestApi
	// AccessLog is the log group of the requests.
	AccessLog awslogs.LogGroup
	// URL of the API, without a slash at its end.
	URL string

	routes []parsedRoute
}

type parsedRoute struct {
	Route
	method, path string
}

// NewAPI returns an API whose routes lead to the handler, a [Function] or any
// other Lambda function of the stack.
func NewAPI(scope constructs.Construct, id string, handler awslambda.Function, props *APIProps) *API {
	p := APIProps{}
	if props != nil {
		p = *props
	}
	a := &API{}
	constructs.NewConstruct_Override(a, scope, &id)
	problems := p.setDefaults(id)
	p.Authorizer.check(&p, func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) })
	a.routes, problems = p.parse(problems)
	p.CORS, problems = p.CORS.setDefaults(a.routes, p.Flavour, problems)
	if limit := p.Limit; timeoutOf(handler) > limit {
		problems = append(problems, fmt.Sprintf("the function's time-out is %v and the API waits %v: the client would be told 503 or 504 while the operation runs on; "+
			"set the function's Timeout to at most %v, or answer 202 and do the work behind a queue", timeoutOf(handler), limit, limit))
	}
	for _, problem := range problems {
		refuse(a, "%s", problem)
	}
	a.AccessLog = awslogs.NewLogGroup(a, jsii.String("AccessLog"), &awslogs.LogGroupProps{Retention: p.LogRetention})
	if p.Flavour == RESTAPI {
		a.rest(handler, &p)
	} else {
		a.http(handler, &p)
	}
	return a
}

// GrantInvoke allows calling the API's routes, if its authorizer is IAM.
func (a *API) GrantInvoke(to awsiam.IGrantable) {
	for _, r := range a.routes {
		if a.REST != nil {
			allow(to, nil, []string{*a.REST.ArnForExecuteApi(&r.method, &r.path, a.REST.DeploymentStage().StageName())}, "execute-api:Invoke")
			continue
		}
		allow(to, nil, []string{*a.HTTP.ArnForExecuteApi(&r.method, &r.path, jsii.String(defaultStage))}, "execute-api:Invoke")
	}
}

// setLimit sets the default of the flavour.
func (p *APIProps) setLimit(invalid func(string, ...any)) {
	usual, most := HTTPAPILimit, HTTPAPILimit
	if p.Flavour == RESTAPI {
		usual, most = RESTAPILimit, MaxRESTAPILimit
	}
	if p.Limit != 0 && (p.Limit < time.Second || p.Limit > most || p.Limit%time.Second != 0) {
		invalid("Limit is %v: use whole seconds from 1s to %v, or zero for %v", p.Limit, most, usual)
		p.Limit = 0
	}
	if p.Limit == 0 {
		p.Limit = usual
	}
}

// setDefaults sets the defaults, and replaces unusable values by usable ones.
func (p *APIProps) setDefaults(id string) (problems []string) {
	invalid := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch p.Flavour {
	case HTTPAPI, RESTAPI:
	case "":
		p.Flavour = HTTPAPI
	default:
		invalid("Flavour is %q: use infra.HTTPAPI or infra.RESTAPI", p.Flavour)
		p.Flavour = HTTPAPI
	}
	if p.Name == "" {
		p.Name = id
	}
	p.setLimit(invalid)
	if p.LogRetention == "" {
		p.LogRetention = awslogs.RetentionDays_ONE_MONTH
	}
	throttle(invalid, "the API", &p.Rate, &p.Burst, DefaultRate, DefaultBurst)
	if p.UsagePlan != nil {
		plan := *p.UsagePlan
		p.UsagePlan = &plan
		throttle(invalid, "UsagePlan", &plan.Rate, &plan.Burst, p.Rate, p.Burst)
		if plan.Daily < 0 {
			invalid("UsagePlan.Daily is %d: use a positive number, or zero for no bound", plan.Daily)
			plan.Daily = 0
		}
	}
	if p.Flavour == RESTAPI {
		return problems
	}
	if p.UsagePlan != nil {
		invalid("UsagePlan is for a REST API: set Flavour to infra.RESTAPI, or throttle by route")
	}
	if p.WebACL != "" {
		invalid("WebACL is for a REST API, WAF does not work in front of an HTTP API: set Flavour to infra.RESTAPI, or put CloudFront in front")
	}
	if p.HasLogRole {
		invalid("HasLogRole is for a REST API: leave it out")
	}
	return problems
}

func throttle(invalid func(string, ...any), whose string, rate *float64, burst *int, otherRate float64, otherBurst int) {
	if *rate < 0 || *burst < 0 {
		invalid("Rate and Burst of %s are %v and %d: use positive numbers, or zero for %v and %d", whose, *rate, *burst, otherRate, otherBurst)
		*rate, *burst = 0, 0
	}
	if *rate == 0 {
		*rate = otherRate
	}
	if *burst == 0 {
		*burst = otherBurst
	}
}

var methods = map[string]bool{"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "OPTIONS": true}

// parse splits the routes; invalid ones are left out.
func (p *APIProps) parse(problems []string) ([]parsedRoute, []string) {
	if len(p.Routes) == 0 {
		problems = append(problems, "there are no Routes: name what leads to the function, such as POST /payments")
	}
	invalid := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var routes []parsedRoute
	seen := map[string]bool{}
	for _, r := range p.Routes {
		method, path, ok := strings.Cut(r.Route, " ")
		switch {
		case !ok || !methods[method] || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " ?#"):
			invalid("the route %q is not a method and a path: write it like POST /payments/{id}", r.Route)
			continue
		case seen[r.Route]:
			invalid("the route %q is there twice: leave one out", r.Route)
			continue
		case len(r.Scopes) > 0 && p.Authorizer.JWT == nil:
			invalid("the route %q has Scopes, which only a JWT authorizer checks: leave them out", r.Route)
			r.Scopes = nil
		}
		seen[r.Route] = true
		throttle(invalid, r.Route, &r.Rate, &r.Burst, p.Rate, p.Burst)
		routes = append(routes, parsedRoute{r, method, path})
	}
	return routes, problems
}
