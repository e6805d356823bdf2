package templatetests

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscognito"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

var (
	twoRoutes = []infra.Route{{Route: "POST /payments"}, {Route: "GET /payments/{id}", Rate: 5, Burst: 7}}
)

func signed() awsapigatewayv2.IHttpRouteAuthorizer {
	return awsapigatewayv2authorizers.NewHttpIamAuthorizer()
}

func tokens() awsapigatewayv2.IHttpRouteAuthorizer {
	return awsapigatewayv2authorizers.NewHttpJwtAuthorizer(jsii.String("JWT"), jsii.String("https://issuer.example"),
		&awsapigatewayv2authorizers.HttpJwtAuthorizerProps{JwtAudience: jsii.Strings("payments")})
}

func api(t *testing.T, props infra.APIProps, more func(awscdk.Stack, *infra.API)) (template, []infra.Problem) {
	t.Helper()
	return synth(t, func(s awscdk.Stack) {
		a := infra.NewAPI(s, "Payments", infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}), &props)
		if more != nil {
			more(s, a)
		}
	})
}

func TestAPI(t *testing.T) {
	got, problems := api(t, infra.APIProps{Routes: twoRoutes, Authorizer: tokens(), Rate: 50, Burst: 60}, func(_ awscdk.Stack, a *infra.API) {
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

// Every authorizer of CDK's is one of an API: here that which has the least of ours.
func TestAPIWithALambdaAuthorizer(t *testing.T) {
	got, problems := synth(t, func(s awscdk.Stack) {
		guard := infra.NewFunction(s, "Guard", &infra.FunctionProps{Code: given(t)})
		infra.NewAPI(s, "Payments", infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}), &infra.APIProps{
			Routes: twoRoutes,
			Authorizer: awsapigatewayv2authorizers.NewHttpLambdaAuthorizer(jsii.String("Guard"), guard,
				&awsapigatewayv2authorizers.HttpLambdaAuthorizerProps{ResultsCacheTtl: awscdk.Duration_Seconds(jsii.Number(0))}),
		})
	})
	require.Empty(t, problems)
	for _, r := range got.resources("AWS::ApiGatewayV2::Route") {
		require.Equal(t, "CUSTOM", at(r, "Properties", "AuthorizationType"))
	}
	_, authorizer := got.only(t, "AWS::ApiGatewayV2::Authorizer")
	require.Equal(t, 0.0, authorizer["AuthorizerResultTtlInSeconds"])
}

// What is not an HTTP API needs none of our constructs: the README of infra shows it.
func TestOtherWaysToAFunction(t *testing.T) {
	got, problems := synth(t, func(stack awscdk.Stack) {
		charge := infra.NewFunction(stack, "Charge", &infra.FunctionProps{Code: given(t)})
		refund := infra.NewFunction(stack, "Refund", &infra.FunctionProps{Code: given(t)})
		monitoring := infra.NewMonitoring(stack, "Monitoring", &infra.MonitoringProps{
			Topic: awssns.NewTopic(stack, jsii.String("Alarms"), nil), Functions: []awslambda.Function{charge, refund},
		})
		customers := awscognito.NewUserPool(stack, jsii.String("Customers"), nil)
		backOffice := awsiam.NewRole(stack, jsii.String("BackOffice"), &awsiam.RoleProps{AssumedBy: awsiam.NewAccountRootPrincipal()})

		// The code of charge uses idemlambda.RESTAPI, and its tenant is a claim of the token.
		rest := awsapigateway.NewLambdaRestApi(stack, jsii.String("REST"), &awsapigateway.LambdaRestApiProps{
			Handler: charge, Proxy: jsii.Bool(false),
			DefaultMethodOptions: &awsapigateway.MethodOptions{
				Authorizer: awsapigateway.NewCognitoUserPoolsAuthorizer(stack, jsii.String("Tokens"),
					&awsapigateway.CognitoUserPoolsAuthorizerProps{CognitoUserPools: &[]awscognito.IUserPool{customers}}),
			},
		})
		rest.Root().ResourceForPath(jsii.String("/payments")).AddMethod(jsii.String("POST"), nil, nil)
		monitoring.AddAlarm("REST5xx", rest.MetricServerError(nil), 1, "the REST API answers with 5xx")

		// The code of refund uses idemlambda.FunctionURL, and its tenant is the caller's account.
		url := refund.AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_AWS_IAM})
		url.GrantInvokeUrl(backOffice)
	})
	require.Empty(t, problems)
	_, method := got.only(t, "AWS::ApiGateway::Method")
	require.Equal(t, "COGNITO_USER_POOLS", method["AuthorizationType"])
	require.Equal(t, "POST", method["HttpMethod"])
	require.Equal(t, "AWS_PROXY", at(method, "Integration", "Type"))
	require.Equal(t, "5XXError", got.named(t, "AWS::CloudWatch::Alarm", "MonitoringREST5xx")["MetricName"])
	_, url := got.only(t, "AWS::Lambda::Url")
	require.Equal(t, "AWS_IAM", url["AuthType"])
	require.Contains(t, got.allowed(t), "lambda:InvokeFunctionUrl")
}

// A browser asks before it sends an Idempotency-Key, and sees what the contract says.
func TestAPICORS(t *testing.T) {
	cors := &awsapigatewayv2.CorsPreflightOptions{
		AllowOrigins: jsii.Strings("https://shop.example"), AllowHeaders: jsii.Strings("X-Trace", "content-type"),
		AllowCredentials: jsii.Bool(true), MaxAge: awscdk.Duration_Hours(jsii.Number(1)),
	}
	got, problems := api(t, infra.APIProps{Routes: twoRoutes, Authorizer: tokens(), CORS: cors}, nil)
	require.Empty(t, problems)
	_, p := got.only(t, "AWS::ApiGatewayV2::Api")
	require.Equal(t, map[string]any{
		"AllowOrigins": []any{"https://shop.example"}, "AllowMethods": []any{"POST", "GET"}, "AllowCredentials": true, "MaxAge": 3600.0,
		"AllowHeaders": []any{"Idempotency-Key", "Content-Type", "Authorization", "X-Api-Key", "X-Amz-Date", "X-Amz-Security-Token",
			"X-Amz-Content-Sha256", "X-Trace"},
		"ExposeHeaders": []any{"Idempotency-Replayed", "Idempotent-Replayed", "Idempotency-Expires", "Retry-After", "Location"},
	}, p["CorsConfiguration"])
	require.Equal(t, jsii.Strings("X-Trace", "content-type"), cors.AllowHeaders, "the caller's options are the caller's")
}

func TestAPIScopes(t *testing.T) {
	got, problems := api(t, infra.APIProps{
		Routes: []infra.Route{{Route: "POST /payments", Scopes: []string{"pay"}}}, Authorizer: tokens(),
	}, nil)
	require.Empty(t, problems)
	_, route := got.only(t, "AWS::ApiGatewayV2::Route")
	require.Equal(t, []any{"pay"}, route["AuthorizationScopes"])
}

func TestAPIGrantInvoke(t *testing.T) {
	got, problems := api(t, infra.APIProps{Routes: twoRoutes, Authorizer: signed()}, func(s awscdk.Stack, a *infra.API) {
		a.GrantInvoke(awsiam.NewRole(s, jsii.String("Client"), &awsiam.RoleProps{AssumedBy: awsiam.NewAccountRootPrincipal()}))
	})
	require.Empty(t, problems)
	resources := got.allowed(t)["execute-api:Invoke"]
	require.Len(t, resources, 2)
	require.Contains(t, resources[0]+resources[1], "/POST/payments")
	require.Contains(t, resources[0]+resources[1], "/GET/payments/")
}

func TestAPIChecks(t *testing.T) {
	const isError, isWarning = true, false
	routes := func(all ...infra.Route) infra.APIProps { return infra.APIProps{Routes: all, Authorizer: signed()} }
	for name, tc := range map[string]struct {
		props infra.APIProps
		error bool
		says  []string
	}{
		"no routes":             {routes(), isError, []string{"there are no Routes"}},
		"no route":              {routes(infra.Route{Route: "/payments"}), isError, []string{`"/payments" is not a method and a path`}},
		"no such method":        {routes(infra.Route{Route: "TAKE /payments"}), isError, []string{`"TAKE /payments" is not a method`}},
		"a route twice":         {routes(infra.Route{Route: "GET /a"}, infra.Route{Route: "GET /a"}), isError, []string{`"GET /a" is there twice`}},
		"scopes without tokens": {routes(infra.Route{Route: "GET /a", Scopes: []string{"x"}}), isError, []string{"only an authorizer of JWTs checks"}},
		"negative rate":         {routes(infra.Route{Route: "GET /a", Rate: -1}), isError, []string{"Rate and Burst of GET /a are -1"}},
		"no authorizer":         {infra.APIProps{Routes: twoRoutes}, isError, []string{"there is no Authorizer"}},
		"open to all": {infra.APIProps{Routes: twoRoutes, Authorizer: awsapigatewayv2.NewHttpNoneAuthorizer()}, isWarning,
			[]string{"everybody call", "idem:open-api"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := api(t, tc.props, nil)
			says(t, problems, tc.error, tc.says...)
		})
	}
	for _, timeout := range []time.Duration{infra.APILimit, infra.APILimit + time.Second} {
		t.Run("a time-out of "+timeout.String(), func(t *testing.T) {
			_, problems := synth(t, func(s awscdk.Stack) {
				f := infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t), Timeout: timeout})
				infra.NewAPI(s, "Payments", f, &infra.APIProps{Routes: twoRoutes, Authorizer: signed()})
			})
			if timeout == infra.APILimit {
				require.Empty(t, problems)
				return
			}
			says(t, problems, isError, "time-out is 31s", "the API waits 30s", "at most 30s")
		})
	}
}

// A mistake does not open an API.
func TestAPIWithoutAnAuthorizerIsClosed(t *testing.T) {
	got, _ := api(t, infra.APIProps{Routes: twoRoutes}, nil)
	for _, r := range got.resources("AWS::ApiGatewayV2::Route") {
		require.Equal(t, "AWS_IAM", at(r, "Properties", "AuthorizationType"))
	}
}
