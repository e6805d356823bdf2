package templatetests

import (
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
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

func TestAPIChecks(t *testing.T) {
	const isError, isWarning = true, false
	routes := func(all ...infra.Route) infra.APIProps { return infra.APIProps{Routes: all, Authorizer: signed()} }
	for name, tc := range map[string]struct {
		props infra.APIProps
		error bool
		says  []string
	}{
		"no routes": {routes(), isError, []string{"there are no Routes"}},
		"no route": {routes(infra.Route{Route: "/payments"}), isError,
			[]string{`"/payments" is not a method and a path`}},
		"no such method": {routes(infra.Route{Route: "TAKE /payments"}), isError,
			[]string{`"TAKE /payments" is not a method`}},
		"a route twice": {routes(infra.Route{Route: "GET /a"}, infra.Route{Route: "GET /a"}), isError,
			[]string{`"GET /a" is there twice`}},
		"scopes without tokens": {routes(infra.Route{Route: "GET /a", Scopes: []string{"x"}}), isError,
			[]string{"only an authorizer of JWTs checks"}},
		"negative rate": {routes(infra.Route{Route: "GET /a", Rate: -1}), isError,
			[]string{"Rate and Burst of GET /a are -1"}},
		"no authorizer": {infra.APIProps{Routes: twoRoutes}, isError, []string{"there is no Authorizer"}},
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
