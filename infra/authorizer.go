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
// the tenant from the authorizer, so the function must name the same one.
type Authorizer struct {
	// JWT accepts tokens; the tenant is one of their claims.
	JWT *JWT
	// IAM accepts signed requests of AWS principals with the permission, see
	// [API.GrantInvoke]; the tenant is their account or user.
	IAM bool
	// Lambda calls a function; the tenant is in the context that it returns. On an HTTP
	// API the function gets payload 2.0 and answers in either form. On a REST API it gets
	// a request event and answers with a policy.
	Lambda awslambda.IFunction
	// Headers are all request headers by which that function decides, and from which it
	// takes the tenant. API Gateway then caches the function's answers for 5 minutes by
	// these headers' values, and itself answers 401 to a request without one of them.
	// Empty means that nothing is cached, and the function is called for every request.
	//
	// If the function reads a header that is not named here, or anything else, one caller
	// gets the tenant of another whose named headers are the same. An answer for one route
	// holds for all others: name no headers if the function decides by the path, the method
	// or the client's address. For Lambda.
	Headers []string
	// None lets everybody call. A warning says so.
	None bool
}

// JWT says which tokens an API accepts.
type JWT struct {
	// Issuer is the URL in the token's iss claim. A REST API accepts only Cognito user
	// pools in the stack's account.
	Issuer string
	// Audience has the accepted values of a token's aud or client_id claim.
	// Required on an HTTP API; a REST API does not check it.
	Audience []string
}

// token is a header's name (RFC 9110, 5.1).
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// keptAnswers is how long API Gateway caches an authorizer's answer.
const keptAnswers = 5 * time.Minute

// sources are the headers in the API's notation, and how long answers are cached by them.
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
