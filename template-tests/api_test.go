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

var twoRoutes = []infra.Route{{Route: "POST /payments"}, {Route: "GET /payments/{id}", Rate: 5, Burst: 7}}

func signed() awsapigatewayv2.IHttpRouteAuthorizer {
	return awsapigatewayv2authorizers.NewHttpIamAuthorizer()
}

func tokens() awsapigatewayv2.IHttpRouteAuthorizer {
	return awsapigatewayv2authorizers.NewHttpJwtAuthorizer(jsii.String("JWT"), jsii.String("https://issuer.example"),
		&awsapigatewayv2authorizers.HttpJwtAuthorizerProps{JwtAudience: jsii.Strings("payments")})
}

func TestAPIChecks(t *testing.T) {
	build := func(props infra.APIProps, timeout time.Duration) func(awscdk.Stack) {
		return func(s awscdk.Stack) {
			infra.NewAPI(s, "Payments",
				infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t), Timeout: timeout}), &props)
		}
	}
	routes := func(all ...infra.Route) func(awscdk.Stack) {
		return build(infra.APIProps{Routes: all, Authorizer: signed()}, 0)
	}
	objects(t, nil, map[string]objection{
		"no routes":      refuses(routes(), "there are no Routes"),
		"no route":       refuses(routes(infra.Route{Route: "/payments"}), `"/payments" is not a method and a path`),
		"no such method": refuses(routes(infra.Route{Route: "TAKE /payments"}), `"TAKE /payments" is not a method`),
		"a route twice": refuses(routes(infra.Route{Route: "GET /a"}, infra.Route{Route: "GET /a"}),
			`"GET /a" is there twice`),
		"scopes without tokens": refuses(routes(infra.Route{Route: "GET /a", Scopes: []string{"x"}}),
			"only an authorizer of JWTs checks"),
		"negative rate": refuses(routes(infra.Route{Route: "GET /a", Rate: -1}), "Rate and Burst of GET /a are -1"),
		"no authorizer": refuses(build(infra.APIProps{Routes: twoRoutes}, 0), "there is no Authorizer"),
		"open to all": warns(build(infra.APIProps{Routes: twoRoutes,
			Authorizer: awsapigatewayv2.NewHttpNoneAuthorizer()}, 0), "everybody call", "idem:open-api"),
		"the longest time-out": accepts(build(infra.APIProps{Routes: twoRoutes, Authorizer: signed()}, infra.APILimit)),
		"a longer time-out": refuses(build(infra.APIProps{Routes: twoRoutes, Authorizer: signed()},
			infra.APILimit+time.Second), "time-out is 31s", "the API waits 30s", "at most 30s"),
	})
}

// A mistake does not open an API.
func TestAPIWithoutAnAuthorizerIsClosed(t *testing.T) {
	got, _ := synth(t, func(s awscdk.Stack) {
		infra.NewAPI(s, "Payments", infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}),
			&infra.APIProps{Routes: twoRoutes})
	})
	for _, r := range got.resources("AWS::ApiGatewayV2::Route") {
		require.Equal(t, "AWS_IAM", at(r, "Properties", "AuthorizationType"))
	}
}
