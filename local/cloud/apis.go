package cloud

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
}

// Route is what an API does with a request.
type Route struct {
	Function string
	Auth     Auth
}

// Auth is who may use a route.
type Auth string

// The ways of authorization.
const (
	Open Auth = ""    // all callers
	JWT  Auth = "JWT" // who has a token
	IAM  Auth = "IAM" // who signs with credentials
)

func init() {
	http := "apigateway"
	register("AWS::ApiGatewayV2::Api", kind{service: http, plan: planHTTPAPI, more: endpointOf, ref: "ApiId",
		ignored: []string{"Name", "CorsConfiguration", "DisableExecuteApiEndpoint", "RouteSelectionExpression"}})
	for _, part := range []string{"Route", "Integration", "Stage", "Authorizer"} {
		register("AWS::ApiGatewayV2::"+part, kind{service: http, plan: partOfAPI})
	}
	register("AWS::ApiGateway::RestApi", kind{service: http, plan: planRESTAPI, ref: "RestApiId",
		more: func(r *resource, attribute string) string {
			if attribute == "RootResourceId" {
				return r.key() + "/"
			}
			return endpointOf(r, attribute)
		}, ignored: []string{"Name", "EndpointConfiguration", "Policy", "MinimumCompressionSize", "ApiKeySourceType"}})
	register("AWS::ApiGateway::Resource", kind{service: http, plan: partOfAPI,
		more: func(r *resource, attribute string) string {
			if attribute == "ResourceId" {
				return r.key()
			}
			return ""
		}})
	for _, part := range []string{"Method", "Stage", "Deployment", "Authorizer"} {
		register("AWS::ApiGateway::"+part, kind{service: http, plan: partOfAPI})
	}
}

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
		return versionOf(r, "FunctionArn")
	}
	return ""
}

// api is the URL of an API; any before there is one.
func (e Endpoints) api(key string) string {
	if url := e.APIs[key]; url != "" {
		return url
	}
	return "http://127.0.0.1:1"
}

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

// authOf is the authorization of a route or a method.
func (p *Plan) authOf(r *resource, kind string) (Auth, error) {
	switch kind {
	case "", "NONE":
		return Open, nil
	case "AWS_IAM":
		return IAM, nil
	case "JWT", "COGNITO_USER_POOLS":
		return JWT, nil
	}
	return Open, r.fail("the authorization %s does not run here: only NONE, JWT and AWS_IAM", kind)
}

func planHTTPAPI(p *Plan, r *resource) error {
	var is struct{ ProtocolType string }
	if err := p.decode(r, &is, "ProtocolType"); err != nil {
		return err
	}
	if is.ProtocolType != "HTTP" {
		return r.fail("an API of the protocol %s does not run here, only HTTP", is.ProtocolType)
	}
	a := API{Key: r.key(), Name: r.id, Flavour: gateway.HTTPAPI, Stage: "$default", Routes: map[string]Route{}, of: r}
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
	routes, err := p.partsOf(v2+"Route", "ApiId", a.Key)
	if err != nil {
		return err
	}
	for _, route := range routes {
		var of struct{ RouteKey, Target, AuthorizationType string }
		err := p.decode(route, &of, "RouteKey", "Target", "AuthorizationType", "ApiId", "AuthorizerId", "AuthorizationScopes")
		if err != nil {
			return err
		}
		auth, err := p.authOf(route, of.AuthorizationType)
		if err != nil {
			return err
		}
		if _, twice := a.Routes[of.RouteKey]; twice {
			return route.fail("another route of %s is %s too", r.id, of.RouteKey)
		}
		if functions[of.Target] == "" {
			return route.fail("the route %s has no function: its target is %q", of.RouteKey, of.Target)
		}
		a.Routes[of.RouteKey] = Route{functions[of.Target], auth}
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
	var is struct{ BinaryMediaTypes []string }
	if err := p.decode(r, &is, "BinaryMediaTypes"); err != nil {
		return err
	}
	a := API{Key: r.key(), Name: r.id, Flavour: gateway.RESTAPI, Stage: gateway.DefaultStage, Routes: map[string]Route{},
		BinaryMediaTypes: is.BinaryMediaTypes, of: r}
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
	methods, err := p.partsOf(v1+"Method", "RestApiId", a.Key)
	if err != nil {
		return err
	}
	for _, m := range methods {
		var of struct {
			HttpMethod, ResourceId, AuthorizationType string
			ApiKeyRequired                            flag
			Integration                               struct{ Type, Uri string }
		}
		err := p.decode(m, &of, "HttpMethod", "ResourceId", "AuthorizationType", "Integration", "ApiKeyRequired", "RestApiId")
		if err != nil {
			return err
		}
		auth, err := p.authOf(m, of.AuthorizationType)
		if err != nil {
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
		a.Routes[route] = Route{functionName(of.Integration.Uri), auth}
	}
	stages, err := p.partsOf(v1+"Stage", "RestApiId", a.Key)
	if err != nil {
		return err
	}
	for _, stage := range stages {
		name, err := r.stack.scope.Eval(stage.Properties["StageName"])
		if err != nil {
			return stage.fail("%w", err)
		}
		a.Stage = fmt.Sprint(name)
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
	auth, err := p.authOf(r, is.AuthType)
	if err != nil {
		return err
	}
	p.APIs = append(p.APIs, API{Key: r.key(), Name: r.id, Flavour: gateway.FunctionURL, of: r,
		Routes: map[string]Route{"$default": {functionName(is.TargetFunctionArn), auth}}})
	return nil
}
