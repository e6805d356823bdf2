package infra

import (
	"regexp"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscognito"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Authorizer says who may call an API: exactly one field is set. The library takes
// the tenant from it, so the function must name the same one.
type Authorizer struct {
	// JWT accepts tokens; the tenant is one of their claims.
	JWT *JWT
	// IAM accepts requests signed by AWS principals that are allowed to, see
	// [API.GrantInvoke]; the tenant is their account or user.
	IAM bool
	// Lambda asks a function; the tenant is in the context that it returns. It gets
	// payload 2.0 and answers in either form on an HTTP API, and gets a request event
	// and answers with a policy on a REST API.
	Lambda awslambda.IFunction
	// Headers are the request headers by which that function decides, and from which it
	// takes the tenant: all of them. API Gateway then keeps its answers for 5 minutes by
	// these headers' values, and answers a request without one of them with 401 itself.
	// Empty means that nothing is kept, and the function is asked about every request. A
	// header that the function looks at and that is not named here would give one
	// caller's tenant to another whose named headers are the same; so would anything else
	// that it looks at, and an answer for one route would hold for all others: name none
	// where it decides by the path, the method or the client's address. For Lambda.
	Headers []string
	// None lets everybody call. A warning says so.
	None bool
}

// JWT is whose tokens an API accepts.
type JWT struct {
	// Issuer is the URL of the token's iss claim. A REST API knows those of Cognito
	// user pools in the stack's account only.
	Issuer string
	// Audience is what a token's aud or client_id claim must be, any one of them.
	// Required on an HTTP API; a REST API does not look at it.
	Audience []string
}

// token is a header's name (RFC 9110, 5.1).
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// keptAnswers is how long API Gateway keeps what an authorizer has answered.
const keptAnswers = 5 * time.Minute

// sources are the headers as an API knows them, and how long answers are kept by them.
func (z *Authorizer) sources(prefix string) (headers *[]*string, kept awscdk.Duration) {
	named := make([]*string, len(z.Headers))
	for i, h := range z.Headers {
		named[i] = jsii.String(prefix + h)
	}
	if len(named) == 0 {
		return &named, duration(0)
	}
	return &named, duration(keptAnswers)
}

// cognitoIssuer has the region and the pool.
var cognitoIssuer = regexp.MustCompile(`^https://cognito-idp\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([\w-]+)$`)

func (z *Authorizer) check(p *APIProps, invalid func(string, ...any)) {
	set := 0
	for _, is := range []bool{z.JWT != nil, z.IAM, z.Lambda != nil, z.None} {
		if is {
			set++
		}
	}
	if set != 1 {
		invalid("Authorizer has %d of JWT, IAM, Lambda and None: set exactly one; the tenant comes from it", set)
	}
	if set == 0 {
		z.IAM = true // a mistake must not open the API
	}
	if z.Lambda == nil && len(z.Headers) > 0 {
		invalid("Authorizer.Headers is for a Lambda authorizer: leave it out")
	}
	for _, h := range z.Headers {
		if !token.MatchString(h) {
			invalid("Authorizer.Headers has %q: name request headers, such as Authorization", h)
			z.Headers = nil
			break
		}
	}
	if z.JWT == nil {
		return
	}
	kept := z.JWT
	z.JWT, z.IAM = nil, true
	switch rest := p.Flavour == RESTAPI; {
	case rest && !cognitoIssuer.MatchString(kept.Issuer):
		invalid("Authorizer.JWT.Issuer is %q: a REST API verifies only tokens of Cognito user pools; use the pool's issuer, a Lambda authorizer, or an HTTP API", kept.Issuer)
	case rest && len(kept.Audience) > 0:
		invalid("Authorizer.JWT.Audience is set, and a REST API does not look at it: leave it out and ask for Scopes, or use an HTTP API")
	case !rest && kept.Issuer == "":
		invalid("Authorizer.JWT.Issuer is empty: name the URL of the tokens' issuer")
	case !rest && len(kept.Audience) == 0:
		invalid("Authorizer.JWT.Audience is empty: name the audience, or tokens that the issuer made for others would be accepted")
	default:
		z.JWT, z.IAM = kept, false
	}
}

// http is the authorizer for an HTTP API; nil lets everybody call.
func (z *Authorizer) http() awsapigatewayv2.IHttpRouteAuthorizer {
	switch {
	case z.JWT != nil:
		return awsapigatewayv2authorizers.NewHttpJwtAuthorizer(jsii.String("JWT"), jsii.String(z.JWT.Issuer),
			&awsapigatewayv2authorizers.HttpJwtAuthorizerProps{JwtAudience: jsii.Strings(z.JWT.Audience...)})
	case z.IAM:
		return awsapigatewayv2authorizers.NewHttpIamAuthorizer()
	case z.Lambda != nil:
		headers, kept := z.sources("$request.header.")
		return awsapigatewayv2authorizers.NewHttpLambdaAuthorizer(jsii.String("Authorizer"), z.Lambda,
			&awsapigatewayv2authorizers.HttpLambdaAuthorizerProps{
				IdentitySource: headers, ResultsCacheTtl: kept,
				ResponseTypes: &[]awsapigatewayv2authorizers.HttpLambdaResponseType{
					awsapigatewayv2authorizers.HttpLambdaResponseType_SIMPLE, awsapigatewayv2authorizers.HttpLambdaResponseType_IAM,
				},
			})
	}
	return nil
}

// rest is the authorizer for a REST API's methods.
func (z *Authorizer) rest(scope constructs.Construct) *awsapigateway.MethodOptions {
	switch {
	case z.JWT != nil:
		found := cognitoIssuer.FindStringSubmatch(z.JWT.Issuer)
		arn := awscdk.Stack_Of(scope).FormatArn(&awscdk.ArnComponents{
			Service: jsii.String("cognito-idp"), Region: &found[1], Resource: jsii.String("userpool"), ResourceName: &found[2],
		})
		pool := awscognito.UserPool_FromUserPoolArn(scope, jsii.String("UserPool"), arn)
		return &awsapigateway.MethodOptions{
			AuthorizationType: awsapigateway.AuthorizationType_COGNITO,
			Authorizer: awsapigateway.NewCognitoUserPoolsAuthorizer(scope, jsii.String("JWT"),
				&awsapigateway.CognitoUserPoolsAuthorizerProps{CognitoUserPools: &[]awscognito.IUserPool{pool}}),
		}
	case z.IAM:
		return &awsapigateway.MethodOptions{AuthorizationType: awsapigateway.AuthorizationType_IAM}
	case z.Lambda != nil:
		headers, kept := z.sources("method.request.header.")
		return &awsapigateway.MethodOptions{
			AuthorizationType: awsapigateway.AuthorizationType_CUSTOM,
			Authorizer: awsapigateway.NewRequestAuthorizer(scope, jsii.String("Authorizer"), &awsapigateway.RequestAuthorizerProps{
				Handler: z.Lambda, IdentitySources: headers, ResultsCacheTtl: kept,
			}),
		}
	}
	return &awsapigateway.MethodOptions{AuthorizationType: awsapigateway.AuthorizationType_NONE}
}
