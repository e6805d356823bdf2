package cloud

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/iam"
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
	kinds["AWS::ApiGatewayV2::Api"] = kind{service: http, plan: planned(planHTTPAPI), more: endpointOf, ref: "ApiId",
		ignored: []string{"Name", "DisableExecuteApiEndpoint", "RouteSelectionExpression"}}
	for _, part := range []string{"Route", "Integration", "Stage", "Authorizer"} {
		kinds["AWS::ApiGatewayV2::"+part] = kind{service: http, plan: partOfAPI, ignored: partIgnored}
	}
	kinds["AWS::ApiGateway::RestApi"] = kind{service: http, plan: planned(planRESTAPI), ref: "RestApiId",
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
		}, ignored: partIgnored}
	for _, part := range []string{"Method", "Stage", "Deployment", "Authorizer"} {
		kinds["AWS::ApiGateway::"+part] = kind{service: http, plan: partOfAPI, ignored: partIgnored}
	}
}

// partIgnored are properties of parts without effect here.
var partIgnored = []string{"ApiId", "RestApiId", "Name", "AuthType", "AuthorizerCredentialsArn", "MethodResponses",
	"OperationName", "DeploymentId", "MethodSettings", "TracingEnabled", "AccessLogSetting", "StageDescription",
	"AutoDeploy", "AccessLogSettings", "DefaultRouteSettings", "RouteSettings"}

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
		return iam.ARN("lambda", "function:"+functionName(text(of)))
	}
	return ""
}

// api is the URL of an API.
func (e Endpoints) api(key string) string { return cmp.Or(e.APIs[key], notYet) }

// each calls do with each part of an API that has a type: an API's routes may be in another stack.
func each[T any](p *Plan, api *resource, kind string, do func(part *resource, of T) error) error {
	for _, part := range p.resources() {
		if part.Type != kind {
			continue
		}
		var of T
		v, err := part.stack.scope.Eval(part.Properties[api.kind.ref])
		switch {
		case err != nil:
			return part.fail("%s: %w", api.kind.ref, err)
		case v != api.key():
			continue
		}
		if err := p.decode(part, &of); err != nil {
			return err
		}
		if err := do(part, of); err != nil {
			return err
		}
	}
	return nil
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

// authorizersOf adds the authorizers of an API, by their key; nil for those that check tokens.
func (p *Plan) authorizersOf(api *resource, kind string, all map[string]*Authorizer) error {
	return each(p, api, kind, func(part *resource, is authorizer) (err error) {
		all[part.key()], err = is.read(part)
		return err
	})
}

func planHTTPAPI(p *Plan, r *resource, is struct {
	ProtocolType string
	Body         *openAPI
}) error {
	if is.ProtocolType != "HTTP" && is.Body == nil {
		return r.fail("an API of the protocol %s does not run here, only HTTP", is.ProtocolType)
	}
	a := API{Key: r.key(), Name: r.id, Flavour: gateway.HTTPAPI, Stage: "$default", Routes: map[string]Route{}, of: r}
	const v2 = "AWS::ApiGatewayV2::"
	functions, authorizers := map[string]string{}, map[string]*Authorizer{}
	type integration struct{ IntegrationType, IntegrationUri, PayloadFormatVersion string }
	type route struct{ RouteKey, Target, AuthorizationType, AuthorizerId string }
	err := cmp.Or(is.Body.addTo(&a),
		each(p, r, v2+"Integration", func(i *resource, of integration) error {
			if of.IntegrationType != "AWS_PROXY" || of.PayloadFormatVersion != "2.0" {
				return i.fail("an integration %s with the payload format %s does not run here: only AWS_PROXY with 2.0",
					of.IntegrationType, of.PayloadFormatVersion)
			}
			functions["integrations/"+i.key()] = functionName(of.IntegrationUri)
			return nil
		}),
		p.authorizersOf(r, v2+"Authorizer", authorizers),
		each(p, r, v2+"Route", func(part *resource, of route) error {
			to := Route{Function: functions[of.Target]}
			if err := to.auth(part, of.AuthorizationType, of.AuthorizerId, authorizers); err != nil {
				return err
			}
			if to.Function == "" {
				return part.fail("the route %s has no function: its target is %q", of.RouteKey, of.Target)
			}
			return a.add(part, "another route of "+r.id, of.RouteKey, to)
		}),
		each(p, r, v2+"Stage", func(_ *resource, of stage) error {
			a.Stage = of.StageName
			return nil
		}))
	return p.addAPI(a, err)
}

type stage struct{ StageName string }

// add adds a route, unless there is another one.
func (a API) add(r *resource, another, key string, to Route) error {
	if _, twice := a.Routes[key]; twice {
		return r.fail("%s is %s too", another, key)
	}
	a.Routes[key] = to
	return nil
}

func (p *Plan) addAPI(a API, err error) error {
	if err == nil {
		p.APIs = append(p.APIs, a)
	}
	return err
}

func planRESTAPI(p *Plan, r *resource, is struct {
	BinaryMediaTypes []string
	Body             *openAPI
}) error {
	a := API{Key: r.key(), Name: r.id, Flavour: gateway.RESTAPI, Stage: gateway.DefaultStage, Routes: map[string]Route{},
		BinaryMediaTypes: is.BinaryMediaTypes, of: r}
	const v1 = "AWS::ApiGateway::"
	type place struct{ ParentId, PathPart string }
	type method struct {
		HttpMethod, ResourceId, AuthorizationType, AuthorizerId string
		ApiKeyRequired                                          flag
		Integration                                             struct{ Type, Uri string }
	}
	places, authorizers := map[string]place{}, map[string]*Authorizer{}
	pathOf := func(key string) (path string, ok bool) {
		for range places { // at most: there may be a circle
			if of, ok := places[key]; ok {
				path, key = "/"+of.PathPart+path, of.ParentId
			}
		}
		return path, key == r.key()+"/"
	}
	named := func(_ *resource, of stage) error {
		a.Stage = cmp.Or(of.StageName, a.Stage)
		return nil
	}
	err := cmp.Or(is.Body.addTo(&a),
		each(p, r, v1+"Resource", func(part *resource, of place) error {
			places[part.key()] = of
			return nil
		}),
		p.authorizersOf(r, v1+"Authorizer", authorizers),
		each(p, r, v1+"Method", func(m *resource, of method) error {
			to := Route{Function: functionName(of.Integration.Uri)}
			if err := to.auth(m, of.AuthorizationType, of.AuthorizerId, authorizers); err != nil {
				return err
			}
			path, ok := pathOf(of.ResourceId)
			switch {
			case !ok:
				return m.fail("there is no resource %s", of.ResourceId)
			case of.Integration.Type == "MOCK" && of.HttpMethod == "OPTIONS": // CORS
				return nil
			case of.Integration.Type != "AWS_PROXY":
				return m.fail("an integration %s does not run here, only AWS_PROXY", of.Integration.Type)
			case bool(of.ApiKeyRequired):
				return m.fail("keys of APIs do not run here")
			}
			return a.add(m, "another method", of.HttpMethod+" "+cmp.Or(path, "/"), to)
		}),
		each(p, r, v1+"Deployment", named), each(p, r, v1+"Stage", named)) // a deployment may make a stage
	return p.addAPI(a, err)
}

func planURL(p *Plan, r *resource, is struct{ TargetFunctionArn, AuthType string }) error {
	to := Route{Function: functionName(is.TargetFunctionArn)}
	err := to.auth(r, is.AuthType, "", nil)
	return p.addAPI(API{Key: r.key(), Name: r.id, Flavour: gateway.FunctionURL, of: r,
		Routes: map[string]Route{"$default": to}}, err)
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
