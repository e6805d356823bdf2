package cloud

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

// API is an HTTP API, a REST API or the URL of a function.
type API struct {
	Key, Name string
	Flavour   gateway.Flavour
	Stage     string
	// BinaryMediaTypes are those of a REST API.
	BinaryMediaTypes []string
	Routes           map[string]Route // by their method and path, or "$default"
	of               *resource
	timeout          time.Duration // 0: the service's own
}

// Route is what an API does with a request.
type Route struct {
	Function   string
	Auth       Auth
	Authorizer *Authorizer // of Custom; nil otherwise
}

// Authorizer is a function that decides who may use a route.
type Authorizer struct {
	Name string // of the function
	gateway.Function
}

// Auth is who may use a route.
type Auth string

// The ways of authorization.
const (
	Open Auth = ""    // all callers
	JWT  Auth = "JWT" // who has a token
	IAM  Auth = "IAM" // who signs with credentials
	// Custom: who a function lets in.
	Custom Auth = "CUSTOM"
)

func init() {
	http := "apigateway"
	kinds["AWS::ApiGatewayV2::Api"] = kind{service: http, plan: planHTTPAPI, more: endpointOf, ref: "ApiId",
		ignored: []string{"Name", "DisableExecuteApiEndpoint", "RouteSelectionExpression"}}
	for _, part := range []string{"Route", "Integration", "Stage", "Authorizer"} {
		kinds["AWS::ApiGatewayV2::"+part] = kind{service: http, plan: partOfAPI, ignored: partIgnored}
	}
	kinds["AWS::ApiGateway::RestApi"] = kind{service: http, plan: planRESTAPI, ref: "RestApiId",
		more: func(r *resource, attribute string) string {
			if attribute == "RootResourceId" {
				return r.key() + "/"
			}
			return endpointOf(r, attribute)
		}, ignored: []string{"Name", "EndpointConfiguration", "MinimumCompressionSize", "ApiKeySourceType"}}
	kinds["AWS::ApiGateway::Resource"] = kind{service: http, plan: partOfAPI,
		more: func(r *resource, attribute string) string {
			if attribute == "ResourceId" {
				return r.key()
			}
			return ""
		}}
	for _, part := range []string{"Method", "Stage", "Deployment", "Authorizer"} {
		kinds["AWS::ApiGateway::"+part] = kind{service: http, plan: partOfAPI, ignored: partIgnored}
	}
}

// partIgnored are properties of parts without effect here.
var partIgnored = []string{"Name", "AuthType", "AuthorizerCredentialsArn", "MethodResponses", "OperationName",
	"DeploymentId", "MethodSettings", "TracingEnabled", "AccessLogSetting", "StageDescription"}

// partOfAPI is planned with its API.
func partOfAPI(*Plan, *resource) error { return nil }

// endpointOf is the URL of an API.
func endpointOf(r *resource, attribute string) string {
	if attribute != "ApiEndpoint" {
		return ""
	}
	return r.stack.plan.options.Endpoints.api(r.key())
}

func urlOf(r *resource, attribute string) string {
	switch attribute {
	case "FunctionUrl":
		return r.stack.plan.options.Endpoints.api(r.key()) + "/"
	case "FunctionArn":
		of, _ := r.stack.scope.Eval(r.Properties["TargetFunctionArn"]) // its error is also that of the URL's plan
		return arnOf("lambda", "function:"+functionName(text(of)))
	}
	return ""
}

// api is the URL of an API.
func (e Endpoints) api(key string) string { return cmp.Or(e.APIs[key], notYet) }

// parts are the resources of a type whose property names the API.
func (s *stack) parts(of, property, api string) (all []*resource, err error) {
	for _, id := range slices.Sorted(maps.Keys(s.resources)) {
		r := s.resources[id]
		if r.Type != of {
			continue
		}
		v, err := s.scope.Eval(r.Properties[property])
		if err != nil {
			return nil, r.fail("%s: %w", property, err)
		}
		if v == api {
			all = append(all, r)
		}
	}
	return all, nil
}

// partsOf are those in all stacks: an API's routes may be in another one.
func (p *Plan) partsOf(kind, property, api string) (all []*resource, err error) {
	for _, s := range p.stacks {
		more, err := s.parts(kind, property, api)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// auth gives a route what a template says about its authorization.
func (to *Route) auth(r *resource, kind, authorizer string, authorizers map[string]*Authorizer) error {
	known := false
	to.Auth, known = map[string]Auth{"": Open, "NONE": Open, "AWS_IAM": IAM, "JWT": JWT, "COGNITO_USER_POOLS": JWT,
		"CUSTOM": Custom}[kind]
	to.Authorizer = authorizers[authorizer]
	switch {
	case !known:
		return r.fail("there is no authorization %s", kind)
	case to.Auth == Custom && to.Authorizer == nil:
		return r.fail("its authorizer %q is none of its API that is a function", authorizer)
	}
	return nil
}

// authorizer as a template has it.
type authorizer struct {
	Type, AuthorizerType                                                        string
	AuthorizerUri, AuthorizerPayloadFormatVersion, IdentityValidationExpression string
	EnableSimpleResponses                                                       flag
	IdentitySource                                                              texts
}

// read returns the function; nil if it checks tokens.
func (is authorizer) read(r *resource) (a *Authorizer, err error) {
	kind := strings.ToUpper(is.Type + is.AuthorizerType)
	a = &Authorizer{functionName(is.AuthorizerUri), gateway.Function{Version: is.AuthorizerPayloadFormatVersion,
		Simple: bool(is.EnableSimpleResponses), Token: kind == "TOKEN", Sources: is.IdentitySource}}
	tokens := kind == "JWT" || kind == "COGNITO_USER_POOLS"
	for _, source := range a.Sources {
		if !gateway.SourceFor(source) || tokens && !strings.HasSuffix(source, "request.header.Authorization") {
			return nil, r.fail("the identity source %s does not run here", source)
		}
	}
	switch {
	case tokens:
		return nil, nil
	case kind != "REQUEST" && kind != "TOKEN":
		return nil, r.fail("there is no authorizer of the type %q", kind)
	case a.Token && len(a.Sources) == 0:
		a.Sources = []string{"method.request.header.Authorization"}
	}
	if text := is.IdentityValidationExpression; text != "" {
		if a.Valid, err = regexp.Compile(text); err != nil {
			return nil, r.fail("IdentityValidationExpression: %w", err)
		}
	}
	return a, nil
}

// authorizersOf are the authorizers of an API that are functions, by their key.
func (p *Plan) authorizersOf(of, property, api string) (map[string]*Authorizer, error) {
	parts, err := p.partsOf(of, property, api)
	all := map[string]*Authorizer{}
	for _, part := range parts {
		var is authorizer
		err := p.decode(part, &is, property, "Type", "AuthorizerType", "AuthorizerUri", "AuthorizerPayloadFormatVersion",
			"IdentityValidationExpression", "EnableSimpleResponses", "IdentitySource")
		if err != nil {
			return nil, err
		}
		if all[part.key()], err = is.read(part); err != nil {
			return nil, err
		}
	}
	return all, err
}

func planHTTPAPI(p *Plan, r *resource) error {
	var is struct {
		ProtocolType string
		Body         *openAPI
	}
	if err := p.decode(r, &is, "ProtocolType", "Body"); err != nil {
		return err
	}
	if is.ProtocolType != "HTTP" && is.Body == nil {
		return r.fail("an API of the protocol %s does not run here, only HTTP", is.ProtocolType)
	}
	a := API{Key: r.key(), Name: r.id, Flavour: gateway.HTTPAPI, Stage: "$default", Routes: map[string]Route{}, of: r}
	if err := is.Body.addTo(&a); err != nil {
		return err
	}
	const v2 = "AWS::ApiGatewayV2::"
	integrations, err := p.partsOf(v2+"Integration", "ApiId", a.Key)
	if err != nil {
		return err
	}
	functions := map[string]string{}
	for _, i := range integrations {
		var of struct{ IntegrationType, IntegrationUri, PayloadFormatVersion string }
		if err := p.decode(i, &of, "IntegrationType", "IntegrationUri", "PayloadFormatVersion", "ApiId"); err != nil {
			return err
		}
		if of.IntegrationType != "AWS_PROXY" || of.PayloadFormatVersion != "2.0" {
			return i.fail("an integration %s with the payload format %s does not run here: only AWS_PROXY with 2.0",
				of.IntegrationType, of.PayloadFormatVersion)
		}
		functions["integrations/"+i.key()] = functionName(of.IntegrationUri)
	}
	authorizers, err := p.authorizersOf(v2+"Authorizer", "ApiId", a.Key)
	if err != nil {
		return err
	}
	routes, err := p.partsOf(v2+"Route", "ApiId", a.Key)
	if err != nil {
		return err
	}
	for _, route := range routes {
		var of struct{ RouteKey, Target, AuthorizationType, AuthorizerId string }
		err := p.decode(route, &of, "RouteKey", "Target", "AuthorizationType", "ApiId", "AuthorizerId")
		if err != nil {
			return err
		}
		to := Route{Function: functions[of.Target]}
		if err := to.auth(route, of.AuthorizationType, of.AuthorizerId, authorizers); err != nil {
			return err
		}
		if _, twice := a.Routes[of.RouteKey]; twice {
			return route.fail("another route of %s is %s too", r.id, of.RouteKey)
		}
		if to.Function == "" {
			return route.fail("the route %s has no function: its target is %q", of.RouteKey, of.Target)
		}
		a.Routes[of.RouteKey] = to
	}
	stages, err := p.partsOf(v2+"Stage", "ApiId", a.Key)
	if err != nil {
		return err
	}
	for _, stage := range stages {
		var of struct{ StageName string }
		err := p.decode(stage, &of, "StageName", "ApiId", "AutoDeploy", "AccessLogSettings", "DefaultRouteSettings",
			"RouteSettings")
		if err != nil {
			return err
		}
		a.Stage = of.StageName
	}
	p.APIs = append(p.APIs, a)
	return nil
}

func planRESTAPI(p *Plan, r *resource) error {
	var is struct {
		BinaryMediaTypes []string
		Body             *openAPI
	}
	if err := p.decode(r, &is, "BinaryMediaTypes", "Body"); err != nil {
		return err
	}
	a := API{Key: r.key(), Name: r.id, Flavour: gateway.RESTAPI, Stage: gateway.DefaultStage, Routes: map[string]Route{},
		BinaryMediaTypes: is.BinaryMediaTypes, of: r}
	if err := is.Body.addTo(&a); err != nil {
		return err
	}
	const v1 = "AWS::ApiGateway::"
	paths := map[string]string{r.key() + "/": ""}
	resources, err := p.partsOf(v1+"Resource", "RestApiId", a.Key)
	if err != nil {
		return err
	}
	for before := -1; before != len(paths); { // a path's parent may come after it
		before = len(paths)
		for _, part := range resources {
			var of struct{ ParentId, PathPart string }
			if _, done := paths[part.key()]; done {
				continue
			}
			if err := p.decode(part, &of, "ParentId", "PathPart", "RestApiId"); err != nil {
				return err
			}
			if parent, ok := paths[of.ParentId]; ok {
				paths[part.key()] = parent + "/" + of.PathPart
			}
		}
	}
	authorizers, err := p.authorizersOf(v1+"Authorizer", "RestApiId", a.Key)
	if err != nil {
		return err
	}
	methods, err := p.partsOf(v1+"Method", "RestApiId", a.Key)
	if err != nil {
		return err
	}
	for _, m := range methods {
		var of struct {
			HttpMethod, ResourceId, AuthorizationType, AuthorizerId string
			ApiKeyRequired                                          flag
			Integration                                             struct{ Type, Uri string }
		}
		err := p.decode(m, &of, "HttpMethod", "ResourceId", "AuthorizationType", "AuthorizerId", "Integration",
			"ApiKeyRequired", "RestApiId")
		if err != nil {
			return err
		}
		to := Route{Function: functionName(of.Integration.Uri)}
		if err := to.auth(m, of.AuthorizationType, of.AuthorizerId, authorizers); err != nil {
			return err
		}
		path, ok := paths[of.ResourceId]
		route := strings.TrimSpace(of.HttpMethod + " " + path)
		if path == "" {
			route = of.HttpMethod + " /"
		}
		switch _, twice := a.Routes[route]; {
		case !ok:
			return m.fail("there is no resource %s", of.ResourceId)
		case of.Integration.Type == "MOCK" && of.HttpMethod == "OPTIONS": // CORS
			continue
		case of.Integration.Type != "AWS_PROXY":
			return m.fail("an integration %s does not run here, only AWS_PROXY", of.Integration.Type)
		case bool(of.ApiKeyRequired):
			return m.fail("keys of APIs do not run here")
		case twice:
			return m.fail("another method is %s too", route)
		}
		a.Routes[route] = to
	}
	for _, kind := range []string{"Deployment", "Stage"} { // a deployment may make a stage
		stages, err := p.partsOf(v1+kind, "RestApiId", a.Key)
		if err != nil {
			return err
		}
		for _, stage := range stages {
			var of struct{ StageName string }
			if err := p.decode(stage, &of, "StageName", "RestApiId"); err != nil {
				return err
			}
			a.Stage = cmp.Or(of.StageName, a.Stage)
		}
	}
	p.APIs = append(p.APIs, a)
	return nil
}

func planURL(p *Plan, r *resource) error {
	var is struct{ TargetFunctionArn, AuthType string }
	err := p.decode(r, &is, "TargetFunctionArn", "AuthType", "Cors", "InvokeMode", "Qualifier")
	if err != nil {
		return err
	}
	to := Route{Function: functionName(is.TargetFunctionArn)}
	if err := to.auth(r, is.AuthType, "", nil); err != nil {
		return err
	}
	p.APIs = append(p.APIs, API{Key: r.key(), Name: r.id, Flavour: gateway.FunctionURL, of: r,
		Routes: map[string]Route{"$default": to}})
	return nil
}

// check refuses what the gateway would refuse.
func (a API) check() error {
	routes := map[string]gateway.Invoke{}
	for route := range a.Routes {
		routes[route] = func(context.Context, []byte) ([]byte, error) { return nil, nil }
	}
	_, err := gateway.New(routes, &gateway.Options{Flavour: a.Flavour, Stage: a.Stage})
	return err
}

// api is the handler of an API, which an update may replace.
type api struct {
	atomic.Pointer[gateway.Handler]
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := a.Load(); h != nil {
		h.ServeHTTP(w, r)
		return
	}
	http.Error(w, "it starts, or is not part of the template any more", http.StatusServiceUnavailable)
}

// authorizer decides about the requests to an API by what the route says.
func (r *Running) authorizer(a API) gateway.Authorizer {
	tokens, service := gateway.Tokens(r.Issuer.Claims), "execute-api"
	if a.Flavour == gateway.FunctionURL {
		service = "lambda"
	}
	functions := map[string]gateway.Function{} // by their routes
	for route, to := range a.Routes {
		if to.Authorizer != nil {
			f, by := to.Authorizer.Function, r.functions[to.Authorizer.Name]
			f.Invoke = func(ctx context.Context, event []byte) ([]byte, error) {
				return by.Call(context.WithValue(ctx, sourceKey{}, nil), event) // the request is another invocation
			}
			functions[route] = f
		}
	}
	return func(in gateway.Request) (gateway.Caller, error) {
		switch a.Routes[in.Route].Auth {
		case JWT:
			return tokens(in)
		case IAM:
			return signer(in, service)
		case Custom:
			return functions[in.Route].Authorize(in)
		}
		return gateway.Caller{}, nil
	}
}

// serve gives the APIs their routes.
func (r *Running) serve(_ context.Context, p *Plan) error {
	for _, a := range p.APIs {
		routes := map[string]gateway.Invoke{}
		for route, to := range a.Routes {
			routes[route] = r.functions[to.Function].Call
		}
		handler, err := gateway.New(routes, &gateway.Options{
			Flavour: a.Flavour, APIID: a.Key, Stage: a.Stage, BinaryMediaTypes: a.BinaryMediaTypes, Authorize: r.authorizer(a),
			Timeout: a.timeout,
			Report:  func(id string, err error) { r.report("%s: request %s: %v", a.of, cmp.Or(id, "refused"), err) },
		})
		if err != nil {
			return fmt.Errorf("%s: %w", a.of, err)
		}
		r.apis[a.Key].Store(handler)
	}
	for key, a := range r.apis {
		if !slices.ContainsFunc(p.APIs, func(a API) bool { return a.Key == key }) {
			a.Store(nil)
		}
	}
	return nil
}
