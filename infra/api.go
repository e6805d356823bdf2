package infra

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2integrations"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Defaults and limits of an API.
const (
	DefaultRate  = 100
	DefaultBurst = 200
	// APILimit is how long an HTTP API waits for its function at most.
	// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-quotas.html
	APILimit = 30 * time.Second

	// defaultStage of an HTTP API has no name in the URL.
	defaultStage = "$default"
)

// Route is a method and a path that lead to the function.
type Route struct {
	// Route is the route as in the library, such as "POST /payments/{id}".
	Route string
	// Rate and Burst throttle this route alone: requests a second, and at once.
	// Zero means those of the API.
	Rate  float64
	Burst int
	// Scopes that a token needs, any one of them. For an authorizer that verifies JWTs.
	Scopes []string
}

// APIProps of an API. Routes and Authorizer are required.
type APIProps struct {
	// Name of the API. Empty means its id.
	Name string
	// Routes that lead to the function; everything else is 404.
	Routes []Route
	// Authorizer decides who may call, and the library takes the tenant from it: use one of
	// CDK's package awsapigatewayv2authorizers. awsapigatewayv2.HttpNoneAuthorizer lets
	// everybody call, and a warning says so.
	//
	// API Gateway caches the answers of a Lambda authorizer by the headers of its
	// IdentitySource, for 5 minutes unless ResultsCacheTtl says otherwise. If the authorizer
	// decides by anything else too, one caller gets the tenant of another whose headers are
	// the same: set ResultsCacheTtl to zero.
	Authorizer awsapigatewayv2.IHttpRouteAuthorizer
	// CORS lets pages of other origins call the API from a browser. API Gateway answers
	// preflight requests itself, adds the CORS headers to responses, and removes those of the
	// function (https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-cors.html).
	// The headers that idempotent requests and their responses have are added to AllowHeaders
	// and ExposeHeaders. Nil AllowMethods mean those of the routes. Nil means no CORS.
	CORS *awsapigatewayv2.CorsPreflightOptions
	// Rate and Burst throttle the whole stage: requests a second, and at once. Zero
	// means [DefaultRate] and [DefaultBurst].
	Rate  float64
	Burst int
	// LogRetention of the access log. Empty means a month.
	LogRetention awslogs.RetentionDays
}

// API is an HTTP API in front of a function, with an access log, throttling and an
// authorizer. It sends payload 2.0, for idemlambda.HTTPAPI. The access log has no keys and no
// bodies.
type API struct {
	constructs.Construct
	// HTTP is CDK's API.
	HTTP awsapigatewayv2.HttpApi
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
	p := valueOf(props)
	a := &API{}
	constructs.NewConstruct_Override(a, scope, &id)
	found := p.setDefaults(id)
	a.routes = p.parse(&found)
	if timeout := timeoutOf(handler); timeout > APILimit {
		found.add("the function's time-out is %v and the API waits %v: the client would get "+
			"a 503 while the operation runs on; set the function's Timeout to at most %v, or answer 202 and do the work "+
			"behind a queue", timeout, APILimit, APILimit)
	}
	found.refuse(a)
	a.AccessLog = awslogs.NewLogGroup(a, jsii.String("AccessLog"), &awslogs.LogGroupProps{Retention: p.LogRetention})
	a.HTTP = awsapigatewayv2.NewHttpApi(a, jsii.String("HTTP"), &awsapigatewayv2.HttpApiProps{
		ApiName: &p.Name, CreateDefaultStage: jsii.Bool(false), CorsPreflight: cors(p.CORS, a.routes),
	})
	a.route(handler, &p, a.stage(&p))
	return a
}

// GrantInvoke allows calling the API's routes, if its authorizer is IAM.
func (a *API) GrantInvoke(to awsiam.IGrantable) {
	for _, r := range a.routes {
		arn := a.HTTP.ArnForExecuteApi(&r.method, &r.path, jsii.String(defaultStage))
		allow(to, nil, []string{*arn}, "execute-api:Invoke")
	}
}

func (a *API) stage(p *APIProps) awsapigatewayv2.CfnStage {
	stage := awsapigatewayv2.NewHttpStage(a, jsii.String("Stage"), &awsapigatewayv2.HttpStageProps{
		HttpApi: a.HTTP, StageName: jsii.String(defaultStage), AutoDeploy: jsii.Bool(true),
		Throttle: &awsapigatewayv2.ThrottleSettings{RateLimit: &p.Rate, BurstLimit: jsii.Number(p.Burst)},
	})
	a.URL = strings.TrimSuffix(*stage.Url(), "/")
	resource := stage.Node().DefaultChild().(awsapigatewayv2.CfnStage)
	resource.SetAccessLogSettings(&awsapigatewayv2.CfnStage_AccessLogSettingsProperty{
		DestinationArn: a.AccessLog.LogGroupArn(), Format: jsii.String(accessLog),
	})
	return resource
}

// accessLog is the form of a line: without headers, in which keys and tokens are.
const accessLog = `{"authorizerError":"$context.authorizer.error","bytes":"$context.responseLength",` +
	`"error":"$context.integrationErrorMessage","integrationLatency":"$context.integrationLatency",` +
	`"ip":"$context.identity.sourceIp","latency":"$context.responseLatency","method":"$context.httpMethod",` +
	`"requestId":"$context.requestId","route":"$context.routeKey","status":"$context.status",` +
	`"time":"$context.requestTime"}`

func (a *API) route(handler awslambda.Function, p *APIProps, stage awsapigatewayv2.CfnStage) {
	integration := awsapigatewayv2integrations.NewHttpLambdaIntegration(jsii.String("Handler"), handler,
		&awsapigatewayv2integrations.HttpLambdaIntegrationProps{
			PayloadFormatVersion: awsapigatewayv2.PayloadFormatVersion_VERSION_2_0(),
		})
	settings := map[string]any{}
	kind := ""
	for _, r := range a.routes {
		in := &awsapigatewayv2.HttpRouteProps{
			HttpApi: a.HTTP, Integration: integration, Authorizer: p.Authorizer,
			RouteKey: awsapigatewayv2.HttpRouteKey_With(&r.path, awsapigatewayv2.HttpMethod(r.method)),
		}
		if len(r.Scopes) > 0 {
			in.AuthorizationScopes = jsii.Strings(r.Scopes...)
		}
		route := awsapigatewayv2.NewHttpRoute(a, jsii.String(r.Route.Route), in)
		kind = *route.Node().DefaultChild().(awsapigatewayv2.CfnRoute).AuthorizationType()
		if len(r.Scopes) > 0 && kind != "JWT" {
			refuse(a, "the route %q has Scopes, which only an authorizer of JWTs checks: leave them out", r.Route.Route)
		}
		// A stage's settings name routes that exist.
		stage.Node().AddDependency(route)
		if r.Rate != p.Rate || r.Burst != p.Burst {
			settings[r.Route.Route] = map[string]any{"ThrottlingRateLimit": r.Rate, "ThrottlingBurstLimit": r.Burst}
		}
	}
	if len(settings) > 0 {
		stage.SetRouteSettings(settings)
	}
	if kind == "NONE" {
		warn(a, "open-api", "the Authorizer lets everybody call, and without a tenant all callers share one space of keys; "+
			"use another one")
	}
}

// setDefaults sets the defaults, and replaces unusable values by usable ones.
func (p *APIProps) setDefaults(id string) (found problems) {
	p.Name = cmp.Or(p.Name, id)
	if p.Authorizer == nil {
		found.add("there is no Authorizer: use one of awsapigatewayv2authorizers; the tenant comes from it")
		p.Authorizer = awsapigatewayv2authorizers.NewHttpIamAuthorizer() // a mistake must not open the API
	}
	p.LogRetention = cmp.Or(p.LogRetention, awslogs.RetentionDays_ONE_MONTH)
	found.throttle("the API", &p.Rate, &p.Burst, DefaultRate, DefaultBurst)
	return found
}

func (p *problems) throttle(whose string, rate *float64, burst *int, usualRate float64, usualBurst int) {
	if *rate < 0 || *burst < 0 {
		p.add("Rate and Burst of %s are %v and %d: use positive numbers, or zero for %v and %d",
			whose, *rate, *burst, usualRate, usualBurst)
		*rate, *burst = 0, 0
	}
	*rate, *burst = cmp.Or(*rate, usualRate), cmp.Or(*burst, usualBurst)
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// parse splits the routes; invalid ones are left out.
func (p *APIProps) parse(found *problems) (routes []parsedRoute) {
	if len(p.Routes) == 0 {
		found.add("there are no Routes: name what leads to the function, such as POST /payments")
	}
	seen := map[string]bool{}
	for _, r := range p.Routes {
		method, path, ok := strings.Cut(r.Route, " ")
		switch {
		case !ok || !slices.Contains(methods, method), !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " ?#"):
			found.add("the route %q is not a method and a path: write it like POST /payments/{id}", r.Route)
		case seen[r.Route]:
			found.add("the route %q is there twice: leave one out", r.Route)
		default:
			seen[r.Route] = true
			found.throttle(r.Route, &r.Rate, &r.Burst, p.Rate, p.Burst)
			routes = append(routes, parsedRoute{r, method, path})
		}
	}
	return routes
}

var (
	// requestHeaders are those that idempotent requests have, and those by which the
	// authorizers know who sends them.
	requestHeaders = []string{"Idempotency-Key", "Content-Type", "Authorization", "X-Api-Key", "X-Amz-Date",
		"X-Amz-Security-Token", "X-Amz-Content-Sha256"}
	// responseHeaders are those that clients read by the contract.
	responseHeaders = []string{"Idempotency-Replayed", "Idempotent-Replayed", "Idempotency-Expires", "Retry-After",
		"Location"}
)

// cors adds what the contract needs to the options.
func cors(o *awsapigatewayv2.CorsPreflightOptions, routes []parsedRoute) *awsapigatewayv2.CorsPreflightOptions {
	if o == nil {
		return nil
	}
	c := *o
	c.AllowHeaders = union(requestHeaders, c.AllowHeaders)
	c.ExposeHeaders = union(responseHeaders, c.ExposeHeaders)
	if c.AllowMethods == nil {
		var all []awsapigatewayv2.CorsHttpMethod
		for _, r := range routes {
			if m := awsapigatewayv2.CorsHttpMethod(r.method); !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
		c.AllowMethods = &all
	}
	return &c
}

// union adds the names that are not in the list yet; case does not count.
func union(names []string, more *[]*string) *[]*string {
	all := slices.Clone(names)
	if more != nil {
		for _, m := range *more {
			if !slices.ContainsFunc(all, func(n string) bool { return strings.EqualFold(n, *m) }) {
				all = append(all, *m)
			}
		}
	}
	return jsii.Strings(all...)
}
