package cloud

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

// defined is a template with an HTTP API and a REST API whose routes are in OpenAPI, as AWS SAM writes them.
const defined = `
Resources:
  Echo:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60}
  Http:
    Type: AWS::ApiGatewayV2::Api
    Properties:
      Body:
        openapi: 3.0.1
        paths:
          "/orders/{id}":
            parameters: [{name: id, in: path}]
            get:
              x-amazon-apigateway-integration: &http
                type: aws_proxy
                payloadFormatVersion: "2.0"
                uri: !Sub "arn:aws:apigateway:us-east-1:lambda:path/2015-03-31/functions/${Echo.Arn}/invocations"
            put: {x-amazon-apigateway-integration: *http, security: [{AWS_IAM: []}]}
            post: {x-amazon-apigateway-integration: *http, security: [{Jwt: [scope]}]}
            patch: {x-amazon-apigateway-integration: *http, security: [{NONE: []}]}
          $default: {x-amazon-apigateway-any-method: {x-amazon-apigateway-integration: *http}}
        components:
          securitySchemes:
            AWS_IAM: {type: apiKey, x-amazon-apigateway-authtype: awsSigv4}
            Jwt:
              x-amazon-apigateway-authorizer:
                {type: jwt, identitySource: $request.header.Authorization, jwtConfiguration: {issuer: i, audience: [a]}}
  Rest:
    Type: AWS::ApiGateway::RestApi
    Properties:
      Body:
        swagger: "2.0"
        paths:
          /signed:
            get:
              x-amazon-apigateway-auth: {type: AWS_IAM}
              x-amazon-apigateway-integration: &rest
                {type: aws_proxy, uri: !Sub "arn:aws:apigateway::lambda:path/x/functions/${Echo.Arn}/invocations"}
            put: {x-amazon-apigateway-auth: {type: NONE}, x-amazon-apigateway-integration: *rest}
          "/{proxy+}":
            x-amazon-apigateway-any-method:
              security: [{Token: []}]
              x-amazon-apigateway-integration:
                {type: aws_proxy, uri: !Sub "arn:aws:apigateway::lambda:path/x/functions/${Echo.Arn}/invocations"}
            options: {x-amazon-apigateway-integration: {type: mock}}
        securityDefinitions:
          Token:
            name: X-Word
            x-amazon-apigateway-authtype: custom
            x-amazon-apigateway-authorizer:
              {type: token, authorizerUri: !Sub "arn:aws:apigateway::lambda:path/x/functions/${Echo.Arn}/invocations"}
  Deployment: {Type: AWS::ApiGateway::Deployment, Properties: {RestApiId: !Ref Rest, StageName: Stage}}
`

// The routes of an API may be a definition in OpenAPI.
func TestOpenAPI(t *testing.T) {
	p, err := read(t, defined, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]Route{
		"GET /orders/{id}": {"Shop-Echo", Open, nil}, "PUT /orders/{id}": {"Shop-Echo", IAM, nil},
		"POST /orders/{id}": {"Shop-Echo", JWT, nil}, "PATCH /orders/{id}": {"Shop-Echo", Open, nil},
		"$default": {"Shop-Echo", Open, nil},
	}, p.APIs[0].Routes)
	require.Equal(t, "Stage", p.APIs[1].Stage)
	require.Equal(t, map[string]Route{
		"GET /signed": {"Shop-Echo", IAM, nil}, "PUT /signed": {"Shop-Echo", Open, nil},
		"ANY /{proxy+}": {"Shop-Echo", Custom, &Authorizer{"Shop-Echo",
			gateway.Function{Token: true, Sources: []string{"method.request.header.X-Word"}}}},
	}, p.APIs[1].Routes)
	for change, want := range map[[2]string]string{
		{`payloadFormatVersion: "2.0"`, `payloadFormatVersion: "1.0"`}://
		`an integration AWS_PROXY with the payload format "1.0" does not run here`,
		{"awsSigv4", "oauth"}://
		"Shop/Http (AWS::ApiGatewayV2::Api): the authorization AWS_IAM does not run here",
		{"auth: {type: AWS_IAM", "auth: {type: CUSTOM"}://
		"Shop/Rest (AWS::ApiGateway::RestApi): GET /signed: the authorization CUSTOM does not run here",
		{"{type: token", "{type: magic"}://
		`Shop/Rest (AWS::ApiGateway::RestApi): there is no authorizer of the type "MAGIC"`,
		{"$request.header.Authorization", "$request.querystring.token"}://
		"the identity source $request.querystring.token does not run here",
		{"identitySource: $request.header.Authorization, jwt", "identitySource: $context.x, jwt"}://
		"the identity source $context.x does not run here",
	} {
		require.Contains(t, defined, change[0])
		_, err := read(t, strings.Replace(defined, change[0], change[1], 1), nil)
		require.ErrorContains(t, err, want)
	}
}
