package templatetests

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

var (
	twoRoutes = []infra.Route{{Route: "POST /payments"}, {Route: "GET /payments/{id}", Rate: 5, Burst: 7}}
	tokens    = infra.Authorizer{JWT: &infra.JWT{Issuer: "https://issuer.example", Audience: []string{"payments"}}}
)

func api(t *testing.T, props infra.APIProps, more func(awscdk.Stack, *infra.API)) (template, []infra.Problem) {
	t.Helper()
	return synth(t, func(s awscdk.Stack) {
		a := infra.NewAPI(s, "Payments", infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}), &props)
		if more != nil {
			more(s, a)
		}
	})
}

func TestAPIOfFlavourHTTP(t *testing.T) {
	got, problems := api(t, infra.APIProps{Routes: twoRoutes, Authorizer: tokens, Rate: 50, Burst: 60}, func(_ awscdk.Stack, a *infra.API) {
		require.NotNil(t, a.HTTP)
		require.Nil(t, a.REST)
		require.False(t, strings.HasSuffix(a.URL, "/"))
	})
	require.Empty(t, problems)
	_, p := got.only(t, "AWS::ApiGatewayV2::Api")
	require.Equal(t, "Payments", p["Name"])
	require.Equal(t, "HTTP", p["ProtocolType"])
	resource, stage := got.only(t, "AWS::ApiGatewayV2::Stage")
	require.Equal(t, "$default", stage["StageName"])
	require.Equal(t, true, stage["AutoDeploy"])
	require.Equal(t, map[string]any{"ThrottlingRateLimit": 50.0, "ThrottlingBurstLimit": 60.0}, stage["DefaultRouteSettings"])
	require.Equal(t, map[string]any{"GET /payments/{id}": map[string]any{"ThrottlingRateLimit": 5.0, "ThrottlingBurstLimit": 7.0}}, stage["RouteSettings"])
	log := stage["AccessLogSettings"].(map[string]any)
	require.Equal(t, []string{"PaymentsAccessLog.Arn"}, texts(log["DestinationArn"]))
	requireLogFormat(t, log["Format"].(string))
	routes := got.resources("AWS::ApiGatewayV2::Route")
	require.Len(t, routes, 2)
	for id, r := range routes {
		require.Contains(t, resource["DependsOn"], id, "the stage names routes that may not be there yet")
		require.Equal(t, "JWT", r["Properties"].(map[string]any)["AuthorizationType"])
	}
	_, authorizer := got.only(t, "AWS::ApiGatewayV2::Authorizer")
	require.Equal(t, map[string]any{"Audience": []any{"payments"}, "Issuer": "https://issuer.example"}, authorizer["JwtConfiguration"])
	_, integration := got.only(t, "AWS::ApiGatewayV2::Integration")
	require.Equal(t, "2.0", integration["PayloadFormatVersion"])
	require.NotContains(t, integration, "TimeoutInMillis", "none means 30 s")
	_, logs := got.resources("AWS::Logs::LogGroup"), got.named(t, "AWS::Logs::LogGroup", "PaymentsAccessLog")
	require.Equal(t, 30.0, logs["RetentionInDays"])
	for _, permission := range got.resources("AWS::Lambda::Permission") {
		require.NotContains(t, texts(permission["Properties"].(map[string]any)["SourceArn"])[0], "Ref:*", "any API may call")
	}
}

func requireLogFormat(t *testing.T, format string) {
	t.Helper()
	var fields map[string]string
	require.NoError(t, json.Unmarshal([]byte(format), &fields))
	for _, name := range []string{"requestId", "route", "status", "latency", "error"} {
		require.NotEmpty(t, fields[name], name)
	}
}

func TestAPIOfFlavourREST(t *testing.T) {
	got, problems := api(t, infra.APIProps{
		Flavour: infra.RESTAPI, Name: "payments", Routes: twoRoutes, Authorizer: infra.Authorizer{IAM: true},
		UsagePlan: &infra.UsagePlan{Keys: []string{"shop", "app"}, Rate: 3, Burst: 4, Daily: 1000},
		WebACL:    "arn:aws:wafv2:eu-west-1:111111111111:regional/webacl/x/y",
	}, func(_ awscdk.Stack, a *infra.API) { require.Nil(t, a.HTTP) })
	require.Empty(t, problems)
	_, p := got.only(t, "AWS::ApiGateway::RestApi")
	require.Equal(t, "payments", p["Name"])
	_, stage := got.only(t, "AWS::ApiGateway::Stage")
	require.ElementsMatch(t, []any{
		map[string]any{"HttpMethod": "*", "ResourcePath": "/*", "ThrottlingRateLimit": 100.0, "ThrottlingBurstLimit": 200.0, "DataTraceEnabled": false},
		map[string]any{"HttpMethod": "GET", "ResourcePath": "/~1payments~1{id}", "ThrottlingRateLimit": 5.0, "ThrottlingBurstLimit": 7.0, "DataTraceEnabled": false},
	}, stage["MethodSettings"])
	log := stage["AccessLogSetting"].(map[string]any)
	require.Equal(t, []string{"PaymentsAccessLog.Arn"}, texts(log["DestinationArn"]))
	requireLogFormat(t, log["Format"].(string))
	found := got.resources("AWS::ApiGateway::Method")
	require.Len(t, found, 2)
	for _, m := range found {
		p := m["Properties"].(map[string]any)
		require.Equal(t, "AWS_IAM", p["AuthorizationType"])
		require.Equal(t, true, p["ApiKeyRequired"])
		require.Equal(t, "AWS_PROXY", p["Integration"].(map[string]any)["Type"])
		require.Equal(t, 29000.0, p["Integration"].(map[string]any)["TimeoutInMillis"])
	}
	require.Len(t, got.resources("AWS::ApiGateway::ApiKey"), 2)
	require.Len(t, got.resources("AWS::ApiGateway::UsagePlanKey"), 2)
	_, plan := got.only(t, "AWS::ApiGateway::UsagePlan")
	require.Equal(t, map[string]any{"RateLimit": 3.0, "BurstLimit": 4.0}, plan["Throttle"])
	require.Equal(t, map[string]any{"Limit": 1000.0, "Period": "DAY"}, plan["Quota"])
	_, waf := got.only(t, "AWS::WAFv2::WebACLAssociation")
	require.Contains(t, waf, "ResourceArn")
	got.only(t, "AWS::ApiGateway::Account")
}

func TestAPIAuthorizers(t *testing.T) {
	const issuer = "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_Pool"
	for name, tc := range map[string]struct {
		flavour infra.Flavour
		method  string // the type of routes or methods
		want    string
		make    func(awscdk.Stack) infra.Authorizer
	}{
		"IAM before HTTP":    {infra.HTTPAPI, "AWS::ApiGatewayV2::Route", "AWS_IAM", func(awscdk.Stack) infra.Authorizer { return infra.Authorizer{IAM: true} }},
		"Lambda before HTTP": {infra.HTTPAPI, "AWS::ApiGatewayV2::Route", "CUSTOM", lambdaAuthorizer(t)},
		"Lambda before REST": {infra.RESTAPI, "AWS::ApiGateway::Method", "CUSTOM", lambdaAuthorizer(t)},
		"JWT before REST": {infra.RESTAPI, "AWS::ApiGateway::Method", "COGNITO_USER_POOLS", func(awscdk.Stack) infra.Authorizer {
			return infra.Authorizer{JWT: &infra.JWT{Issuer: issuer}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := synth(t, func(s awscdk.Stack) {
				f := infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)})
				infra.NewAPI(s, "Payments", f, &infra.APIProps{
					Flavour: tc.flavour, Routes: []infra.Route{{Route: "POST /payments"}}, Authorizer: tc.make(s), HasLogRole: tc.flavour == infra.RESTAPI,
				})
			})
			require.Empty(t, problems)
			_, m := got.only(t, tc.method)
			require.Equal(t, tc.want, m["AuthorizationType"])
			require.Empty(t, got.resources("AWS::ApiGateway::Account"))
		})
	}
}

func lambdaAuthorizer(t *testing.T) func(awscdk.Stack) infra.Authorizer {
	return func(s awscdk.Stack) infra.Authorizer {
		return infra.Authorizer{Lambda: infra.NewFunction(s, "Guard", &infra.FunctionProps{Code: given(t)})}
	}
}

// What a Lambda authorizer has answered is kept by the headers that it decides by, or not
// at all: kept by another header, a tenant would be given to every caller who sends that one.
func TestLambdaAuthorizerIsKeptByWhatItDecidesBy(t *testing.T) {
	for name, tc := range map[string]struct {
		headers    []string
		http, rest any
		ttl        float64
	}{
		"nothing named": {nil, nil, nil, 0},
		"two headers": {[]string{"Authorization", "X-Tenant"}, []any{"$request.header.Authorization", "$request.header.X-Tenant"},
			"method.request.header.Authorization,method.request.header.X-Tenant", 300},
	} {
		t.Run(name, func(t *testing.T) {
			make := func(flavour infra.Flavour) template {
				got, problems := synth(t, func(s awscdk.Stack) {
					guard := lambdaAuthorizer(t)(s)
					guard.Headers = tc.headers
					f := infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)})
					infra.NewAPI(s, "Payments", f, &infra.APIProps{Flavour: flavour, Routes: twoRoutes, Authorizer: guard})
				})
				require.Empty(t, problems)
				return got
			}
			_, http := make(infra.HTTPAPI).only(t, "AWS::ApiGatewayV2::Authorizer")
			_, rest := make(infra.RESTAPI).only(t, "AWS::ApiGateway::Authorizer")
			require.Equal(t, tc.ttl, http["AuthorizerResultTtlInSeconds"])
			if tc.headers == nil {
				require.Empty(t, http["IdentitySource"])
				require.Empty(t, rest["IdentitySource"])
				return
			}
			require.Equal(t, tc.http, http["IdentitySource"])
			require.Equal(t, tc.ttl, rest["AuthorizerResultTtlInSeconds"])
			require.Equal(t, tc.rest, rest["IdentitySource"])
		})
	}
}

// A browser asks before it sends an Idempotency-Key, and sees what the contract says.
func TestAPICORS(t *testing.T) {
	cors := &infra.CORS{Origins: []string{"https://shop.example"}, Headers: []string{"X-Trace", "content-type"}, Credentials: true, MaxAge: time.Hour}
	got, problems := api(t, infra.APIProps{Routes: twoRoutes, Authorizer: tokens, CORS: cors}, nil)
	require.Empty(t, problems)
	_, p := got.only(t, "AWS::ApiGatewayV2::Api")
	require.Equal(t, map[string]any{
		"AllowOrigins": []any{"https://shop.example"}, "AllowMethods": []any{"POST", "GET"}, "AllowCredentials": true, "MaxAge": 3600.0,
		"AllowHeaders":  []any{"Idempotency-Key", "Content-Type", "Authorization", "X-Api-Key", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256", "X-Trace"},
		"ExposeHeaders": []any{"Idempotency-Replayed", "Idempotent-Replayed", "Idempotency-Expires", "Retry-After", "Location"},
	}, p["CorsConfiguration"])

	got, problems = api(t, infra.APIProps{Flavour: infra.RESTAPI, Routes: twoRoutes, Authorizer: infra.Authorizer{IAM: true}, UsagePlan: &infra.UsagePlan{Keys: []string{"shop"}}, CORS: cors}, nil)
	require.Empty(t, problems)
	asked := 0
	for _, m := range got.resources("AWS::ApiGateway::Method") {
		p := m["Properties"].(map[string]any)
		if p["HttpMethod"] != "OPTIONS" {
			continue
		}
		asked++
		require.Equal(t, "NONE", p["AuthorizationType"], "a preflight request has no credentials")
		require.NotEqual(t, true, p["ApiKeyRequired"])
		require.Equal(t, "MOCK", at(p, "Integration", "Type"))
		sent := at(p, "Integration", "IntegrationResponses", 0, "ResponseParameters").(map[string]any)
		require.Contains(t, sent["method.response.header.Access-Control-Allow-Headers"], "Idempotency-Key")
		require.Equal(t, "'https://shop.example'", sent["method.response.header.Access-Control-Allow-Origin"])
		require.Contains(t, []any{"'POST'", "'GET'"}, sent["method.response.header.Access-Control-Allow-Methods"])
	}
	require.Equal(t, 2, asked, "one a path")
	refusals := got.resources("AWS::ApiGateway::GatewayResponse")
	require.Len(t, refusals, 2)
	for _, r := range refusals {
		require.Equal(t, "'https://shop.example'", at(r, "Properties", "ResponseParameters", "gatewayresponse.header.Access-Control-Allow-Origin"))
		require.Equal(t, "'true'", at(r, "Properties", "ResponseParameters", "gatewayresponse.header.Access-Control-Allow-Credentials"))
	}
}

// A REST API waits longer where its account may.
func TestAPILimit(t *testing.T) {
	for limit, ok := range map[time.Duration]bool{0: false, 30 * time.Second: false, time.Minute: true, 2 * time.Minute: true} {
		got, problems := synth(t, func(s awscdk.Stack) {
			f := infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t), Timeout: time.Minute})
			infra.NewAPI(s, "Payments", f, &infra.APIProps{Flavour: infra.RESTAPI, Limit: limit, Routes: twoRoutes, Authorizer: infra.Authorizer{IAM: true}})
		})
		if !ok {
			says(t, problems, true, "time-out is 1m0s")
			continue
		}
		require.Empty(t, problems)
		for _, m := range got.resources("AWS::ApiGateway::Method") {
			require.Equal(t, limit.Seconds()*1000, at(m, "Properties", "Integration", "TimeoutInMillis"))
		}
	}
	got, problems := api(t, infra.APIProps{Limit: 10 * time.Second, Routes: twoRoutes, Authorizer: tokens}, nil)
	require.Empty(t, problems)
	_, integration := got.only(t, "AWS::ApiGatewayV2::Integration")
	require.Equal(t, 10000.0, integration["TimeoutInMillis"])
}

func TestAPIScopes(t *testing.T) {
	got, problems := api(t, infra.APIProps{Routes: []infra.Route{{Route: "POST /payments", Scopes: []string{"pay"}}}, Authorizer: tokens}, nil)
	require.Empty(t, problems)
	_, route := got.only(t, "AWS::ApiGatewayV2::Route")
	require.Equal(t, []any{"pay"}, route["AuthorizationScopes"])
}

func TestAPIGrantInvoke(t *testing.T) {
	for _, flavour := range []infra.Flavour{infra.HTTPAPI, infra.RESTAPI} {
		got, problems := api(t, infra.APIProps{Flavour: flavour, Routes: twoRoutes, Authorizer: infra.Authorizer{IAM: true}}, func(s awscdk.Stack, a *infra.API) {
			a.GrantInvoke(awsiam.NewRole(s, jsii.String("Client"), &awsiam.RoleProps{AssumedBy: awsiam.NewAccountRootPrincipal()}))
		})
		require.Empty(t, problems)
		resources := got.allowed(t)["execute-api:Invoke"]
		require.Len(t, resources, 2)
		require.Contains(t, resources[0]+resources[1], "/POST/payments")
		require.Contains(t, resources[0]+resources[1], "/GET/payments/")
	}
}

func TestAPIChecks(t *testing.T) {
	const isError, isWarning = true, false
	iam := infra.Authorizer{IAM: true}
	for name, tc := range map[string]struct {
		props infra.APIProps
		error bool
		says  []string
	}{
		"no routes":             {infra.APIProps{Authorizer: iam}, isError, []string{"there are no Routes"}},
		"no route":              {infra.APIProps{Routes: []infra.Route{{Route: "/payments"}}, Authorizer: iam}, isError, []string{`"/payments" is not a method and a path`}},
		"no such method":        {infra.APIProps{Routes: []infra.Route{{Route: "TAKE /payments"}}, Authorizer: iam}, isError, []string{`"TAKE /payments" is not a method`}},
		"a route twice":         {infra.APIProps{Routes: []infra.Route{{Route: "GET /a"}, {Route: "GET /a"}}, Authorizer: iam}, isError, []string{`"GET /a" is there twice`}},
		"scopes without tokens": {infra.APIProps{Routes: []infra.Route{{Route: "GET /a", Scopes: []string{"x"}}}, Authorizer: iam}, isError, []string{"only a JWT authorizer checks"}},
		"negative rate":         {infra.APIProps{Routes: []infra.Route{{Route: "GET /a", Rate: -1}}, Authorizer: iam}, isError, []string{"Rate and Burst of GET /a are -1"}},
		"an odd flavour":        {infra.APIProps{Flavour: "soap", Routes: twoRoutes, Authorizer: iam}, isError, []string{`Flavour is "soap"`}},
		"no authorizer":         {infra.APIProps{Routes: twoRoutes}, isError, []string{"Authorizer has 0", "exactly one"}},
		"two authorizers":       {infra.APIProps{Routes: twoRoutes, Authorizer: infra.Authorizer{IAM: true, None: true}}, isError, []string{"Authorizer has 2"}},
		"no issuer":             {infra.APIProps{Routes: twoRoutes, Authorizer: infra.Authorizer{JWT: &infra.JWT{Audience: []string{"a"}}}}, isError, []string{"Issuer is empty"}},
		"no audience":           {infra.APIProps{Routes: twoRoutes, Authorizer: infra.Authorizer{JWT: &infra.JWT{Issuer: "https://i"}}}, isError, []string{"Audience is empty", "made for others"}},
		"others' tokens on REST": {infra.APIProps{Flavour: infra.RESTAPI, Routes: twoRoutes, Authorizer: infra.Authorizer{JWT: &infra.JWT{Issuer: "https://i"}}},
			isError, []string{"only tokens of Cognito user pools", "a Lambda authorizer"}},
		"audience on REST": {infra.APIProps{Flavour: infra.RESTAPI, Routes: twoRoutes, Authorizer: infra.Authorizer{JWT: &infra.JWT{
			Issuer: "https://cognito-idp.eu-west-1.amazonaws.com/p", Audience: []string{"a"}}}}, isError, []string{"does not look at it"}},
		"open to all":       {infra.APIProps{Routes: twoRoutes, Authorizer: infra.Authorizer{None: true}}, isWarning, []string{"everybody may call", "idem:open-api"}},
		"open REST":         {infra.APIProps{Flavour: infra.RESTAPI, Routes: twoRoutes, Authorizer: infra.Authorizer{None: true}}, isWarning, []string{"everybody may call"}},
		"a plan for HTTP":   {infra.APIProps{Routes: twoRoutes, Authorizer: iam, UsagePlan: &infra.UsagePlan{}}, isError, []string{"UsagePlan is for a REST API"}},
		"WAF for HTTP":      {infra.APIProps{Routes: twoRoutes, Authorizer: iam, WebACL: "arn"}, isError, []string{"WebACL is for a REST API", "CloudFront"}},
		"log role for HTTP": {infra.APIProps{Routes: twoRoutes, Authorizer: iam, HasLogRole: true}, isError, []string{"HasLogRole is for a REST API"}},
		"a plan of no key":  {infra.APIProps{Flavour: infra.RESTAPI, Routes: twoRoutes, Authorizer: iam, UsagePlan: &infra.UsagePlan{}}, isWarning, []string{"no Keys"}},
		"headers without an authorizer": {infra.APIProps{Routes: twoRoutes, Authorizer: infra.Authorizer{IAM: true, Headers: []string{"Authorization"}}}, isError,
			[]string{"Headers is for a Lambda authorizer"}},
		"a header that is none": {infra.APIProps{Routes: twoRoutes, Authorizer: infra.Authorizer{IAM: true, Headers: []string{"X Tenant"}}}, isError,
			[]string{"name request headers"}},
		"a long limit of HTTP": {infra.APIProps{Routes: twoRoutes, Authorizer: iam, Limit: 31 * time.Second}, isError, []string{"Limit is 31s", "to 30s"}},
		"a limit without end":  {infra.APIProps{Flavour: infra.RESTAPI, Routes: twoRoutes, Authorizer: iam, Limit: time.Hour}, isError, []string{"Limit is 1h0m0s", "to 15m0s"}},
		"no origins":           {infra.APIProps{Routes: twoRoutes, Authorizer: iam, CORS: &infra.CORS{}}, isError, []string{"CORS has no Origins"}},
		"an origin with a path": {infra.APIProps{Routes: twoRoutes, Authorizer: iam, CORS: &infra.CORS{Origins: []string{"https://shop.example/"}}}, isError,
			[]string{"write an origin like"}},
		"all origins with cookies": {infra.APIProps{Routes: twoRoutes, Authorizer: iam, CORS: &infra.CORS{Origins: []string{"*"}, Credentials: true}}, isError,
			[]string{`takes no origin "*"`}},
		"all origins and one": {infra.APIProps{Routes: twoRoutes, Authorizer: iam, CORS: &infra.CORS{Origins: []string{"*", "https://shop.example"}}}, isError,
			[]string{"leave the others out"}},
		"no header of CORS": {infra.APIProps{Routes: twoRoutes, Authorizer: iam, CORS: &infra.CORS{Origins: []string{"*"}, Headers: []string{"a b"}}}, isError,
			[]string{`the header "a b"`}},
		"a long age": {infra.APIProps{Routes: twoRoutes, Authorizer: iam, CORS: &infra.CORS{Origins: []string{"*"}, MaxAge: 25 * time.Hour}}, isError, []string{"CORS.MaxAge is 25h0m0s"}},
		"exposed by REST": {infra.APIProps{Flavour: infra.RESTAPI, Routes: twoRoutes, Authorizer: iam, CORS: &infra.CORS{Origins: []string{"*"}, Expose: []string{"X-A"}}}, isError,
			[]string{"Expose is for an HTTP API"}},
		"a preflight of its own": {infra.APIProps{Routes: []infra.Route{{Route: "OPTIONS /a"}}, Authorizer: iam, CORS: &infra.CORS{Origins: []string{"*"}}}, isError,
			[]string{`"OPTIONS /a" is for preflight`}},
		"a negative quota": {infra.APIProps{Flavour: infra.RESTAPI, Routes: twoRoutes, Authorizer: iam, UsagePlan: &infra.UsagePlan{Daily: -1}}, isError, []string{"Daily is -1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := api(t, tc.props, nil)
			says(t, problems, tc.error, tc.says...)
		})
	}
	for flavour, limit := range map[infra.Flavour]time.Duration{infra.HTTPAPI: infra.HTTPAPILimit, infra.RESTAPI: infra.RESTAPILimit} {
		for _, timeout := range []time.Duration{limit, limit + time.Second} {
			t.Run(string(flavour)+" and a time-out of "+timeout.String(), func(t *testing.T) {
				_, problems := synth(t, func(s awscdk.Stack) {
					f := infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t), Timeout: timeout})
					infra.NewAPI(s, "Payments", f, &infra.APIProps{Flavour: flavour, Routes: twoRoutes, Authorizer: iam})
				})
				if timeout == limit {
					require.Empty(t, problems)
					return
				}
				says(t, problems, isError, "time-out is "+timeout.String(), "the API waits "+limit.String(), "at most "+limit.String())
			})
		}
	}
}
