package cloud

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
)

// apis is a template with an API of each kind, all in front of one function that answers with its event.
const apis = `
Resources:
  Echo:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60, Environment: {Variables: {ALLOWED:
      !Sub "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${Rest}/test/*"}}}
  Version: {Type: AWS::Lambda::Version, Properties: {FunctionName: !Ref Echo}}
  Live:
    Type: AWS::Lambda::Alias
    Properties: {FunctionName: !Ref Echo, FunctionVersion: !GetAtt Version.Version, Name: live}

  Rest: {Type: AWS::ApiGateway::RestApi, Properties: {Name: rest, Policy: {Statement: []}}}
  AnOrder:
    Type: AWS::ApiGateway::Resource
    Properties: {RestApiId: !Ref Rest, ParentId: !Ref Orders, PathPart: "{id}"}
  Orders:
    Type: AWS::ApiGateway::Resource
    Properties: {RestApiId: !Ref Rest, ParentId: !GetAtt Rest.RootResourceId, PathPart: orders}
  Proxy:
    Type: AWS::ApiGateway::Resource
    Properties: {RestApiId: !Ref Rest, ParentId: !GetAtt Rest.RootResourceId, PathPart: "{proxy+}"}
  GetOrder:
    Type: AWS::ApiGateway::Method
    Properties: {RestApiId: !Ref Rest, ResourceId: !Ref AnOrder, HttpMethod: GET, AuthorizationType: NONE,
      Integration: &to {Type: AWS_PROXY, IntegrationHttpMethod: POST,
        Uri: !Sub "arn:aws:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${Live}/invocations"}}
  PutOrder:
    Type: AWS::ApiGateway::Method
    Properties: {RestApiId: !Ref Rest, ResourceId: !Ref AnOrder, HttpMethod: PUT, AuthorizationType: AWS_IAM,
      Integration: *to}
  PostOrder:
    Type: AWS::ApiGateway::Method
    Properties: {RestApiId: !Ref Rest, ResourceId: !Ref Orders, HttpMethod: POST, AuthorizerId: !Ref Pool,
      AuthorizationType: COGNITO_USER_POOLS, Integration: *to}
  PatchOrder:
    Type: AWS::ApiGateway::Method
    Properties: {RestApiId: !Ref Rest, ResourceId: !Ref AnOrder, HttpMethod: PATCH, AuthorizerId: !Ref Token,
      AuthorizationType: CUSTOM, Integration: *to}
  DeleteOrder:
    Type: AWS::ApiGateway::Method
    Properties: {RestApiId: !Ref Rest, ResourceId: !Ref AnOrder, HttpMethod: DELETE, AuthorizerId: !Ref Request,
      AuthorizationType: CUSTOM, Integration: *to}
  Root:
    Type: AWS::ApiGateway::Method
    Properties: {RestApiId: !Ref Rest, ResourceId: !GetAtt Rest.RootResourceId, HttpMethod: GET, Integration: *to}
  Else:
    Type: AWS::ApiGateway::Method
    Properties: {RestApiId: !Ref Rest, ResourceId: !Ref Proxy, HttpMethod: ANY, Integration: *to}
  Preflight:
    Type: AWS::ApiGateway::Method
    Properties: {RestApiId: !Ref Rest, ResourceId: !Ref Orders, HttpMethod: OPTIONS, Integration: {Type: MOCK}}
  Pool:
    Type: AWS::ApiGateway::Authorizer
    Properties: {RestApiId: !Ref Rest, Name: pool, Type: COGNITO_USER_POOLS, ProviderARNs: [arn],
      IdentitySource: method.request.header.Authorization}
  Token:
    Type: AWS::ApiGateway::Authorizer
    Properties: {RestApiId: !Ref Rest, Name: token, Type: TOKEN, IdentityValidationExpression: "^open .*",
      AuthorizerUri: !Sub "arn:aws:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${Echo.Arn}/invocations"}
  Request:
    Type: AWS::ApiGateway::Authorizer
    Properties: {RestApiId: !Ref Rest, Name: request, Type: REQUEST, AuthorizerResultTtlInSeconds: 300,
      IdentitySource: "method.request.header.X-Word, method.request.querystring.who",
      AuthorizerUri: !Sub "arn:aws:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${Echo.Arn}/invocations"}
  Deployment: {Type: AWS::ApiGateway::Deployment, Properties: {RestApiId: !Ref Rest}}
  Test:
    Type: AWS::ApiGateway::Stage
    Properties: {RestApiId: !Ref Rest, DeploymentId: !Ref Deployment, StageName: test}

  Http: {Type: AWS::ApiGatewayV2::Api, Properties: {Name: http, ProtocolType: HTTP}}
  Integration:
    Type: AWS::ApiGatewayV2::Integration
    Properties:
      {ApiId: !Ref Http, IntegrationType: AWS_PROXY, IntegrationUri: !Ref Live, PayloadFormatVersion: "2.0"}
  Jwt:
    Type: AWS::ApiGatewayV2::Authorizer
    Properties: {ApiId: !Ref Http, Name: jwt, AuthorizerType: JWT, IdentitySource: [$request.header.Authorization],
      JwtConfiguration: {Issuer: https://issuer, Audience: [shop]}}
  Simple:
    Type: AWS::ApiGatewayV2::Authorizer
    Properties: {ApiId: !Ref Http, Name: simple, AuthorizerType: REQUEST, AuthorizerUri: !GetAtt Echo.Arn,
      AuthorizerPayloadFormatVersion: "2.0", EnableSimpleResponses: true, IdentitySource: [$request.header.X-Word]}
  Open:
    Type: AWS::ApiGatewayV2::Route
    Properties: {ApiId: !Ref Http, RouteKey: "GET /open/{id}", Target: !Sub "integrations/${Integration}"}
  Tokens:
    Type: AWS::ApiGatewayV2::Route
    Properties: {ApiId: !Ref Http, RouteKey: GET /tokens, Target: !Sub "integrations/${Integration}",
      AuthorizationType: JWT, AuthorizerId: !Ref Jwt, AuthorizationScopes: [orders]}
  Signed:
    Type: AWS::ApiGatewayV2::Route
    Properties: {ApiId: !Ref Http, RouteKey: POST /signed, Target: !Sub "integrations/${Integration}",
      AuthorizationType: AWS_IAM}
  Words:
    Type: AWS::ApiGatewayV2::Route
    Properties: {ApiId: !Ref Http, RouteKey: GET /words, Target: !Sub "integrations/${Integration}",
      AuthorizationType: CUSTOM, AuthorizerId: !Ref Simple}

  Public: {Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !Ref Live, Qualifier: live, AuthType: NONE}}
  Private: {Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !GetAtt Echo.Arn, AuthType: AWS_IAM}}
`

// send sends a request, and returns the status and the body of the answer.
func send(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

// newRequest is one with headers, "Name: value" each.
func newRequest(t *testing.T, method, url, body string, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	return r
}

// signing says how a request is signed. The zero value is the right way for the URL of a function.
type signing struct {
	secret, service, region string
	at                      time.Time
	query                   bool
}

func (s signing) sign(t *testing.T, r *http.Request) *http.Request {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	r.Body = io.NopCloser(bytes.NewReader(body))
	sum := sha256.Sum256(body)
	if s.at.IsZero() {
		s.at = time.Now()
	}
	credentials := aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: cmp.Or(s.secret, SecretKey)}
	if s.query {
		url, _, err := v4.NewSigner().PresignHTTP(t.Context(), credentials, r, hex.EncodeToString(sum[:]), "lambda", region,
			s.at)
		require.NoError(t, err)
		return newRequest(t, r.Method, url, string(body))
	}
	require.NoError(t, v4.NewSigner().SignHTTP(t.Context(), credentials, r, hex.EncodeToString(sum[:]),
		cmp.Or(s.service, "lambda"), cmp.Or(s.region, region), s.at))
	return r
}

// started runs a template with the functions of this folder, until the test ends.
func started(t *testing.T, text string, o Options) (*Running, *childtest.Output) {
	t.Helper()
	return startedAs(t, "Shop", text, o)
}

// startedAs runs a template of the stack.
func startedAs(t *testing.T, stack, text string, o Options) (*Running, *childtest.Output) {
	t.Helper()
	path := filepath.Join(t.TempDir(), stack+".template.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	out := &childtest.Output{}
	o.RunDir, o.Output = t.TempDir(), out
	r, err := Start(t.Context(), path, &o)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r, out
}

// APIs of each kind let in who their routes say, and give the function the event of their kind.
func TestAPIs(t *testing.T) {
	r, out := started(t, apis, Options{})
	require.ElementsMatch(t, []string{
		"Shop/Jwt: JwtConfiguration has no effect here", "Shop/Tokens: AuthorizationScopes has no effect here",
		"Shop/Rest: Policy has no effect here", "Shop/Pool: ProviderARNs has no effect here",
		"Shop/Request: AuthorizerResultTtlInSeconds has no effect here",
	}, r.Plan().Notes)
	token, err := r.Issuer.Token("ada", nil, time.Hour)
	require.NoError(t, err)
	to := func(method, api, path string, headers ...string) *http.Request {
		t.Helper()
		return newRequest(t, method, r.Endpoints.APIs["Shop-"+api]+path, "", headers...)
	}
	bearer, execute := "Authorization: Bearer "+token, signing{service: "execute-api"}
	const signer, sesame = `arn:aws:iam::000000000000:user/local`, "X-Word: open sesame"
	for name, c := range map[string]struct {
		request *http.Request
		status  int
		want    []string // in the answer
	}{
		"REST": {to("GET", "Rest", "/test/orders/7?x=1"), 200,
			[]string{`"resource":"/orders/{id}"`, `"path":"/orders/7"`, `"id":"7"`, `"stage":"test"`}},
		"REST, root":               {to("GET", "Rest", "/test/"), 200, []string{`"resource":"/"`}},
		"REST, anything":           {to("PUT", "Rest", "/test/a/b"), 200, []string{`"proxy":"a/b"`}},
		"REST, another stage":      {to("GET", "Rest", "/prod/orders/7"), 403, nil},
		"REST, no stage":           {to("GET", "Rest", "/orders/7"), 403, nil},
		"REST, preflight":          {to("OPTIONS", "Rest", "/test/orders"), 200, []string{`"proxy":"orders"`}},
		"REST, signed":             {execute.sign(t, to("PUT", "Rest", "/test/orders/7")), 200, []string{signer}},
		"REST, not signed":         {to("PUT", "Rest", "/test/orders/7"), 403, nil},
		"REST, token":              {to("POST", "Rest", "/test/orders", bearer), 200, []string{`"sub":"ada"`}},
		"REST, no token":           {to("POST", "Rest", "/test/orders"), 401, nil},
		"REST, signed, for tokens": {execute.sign(t, to("POST", "Rest", "/test/orders")), 401, nil},
		"REST, word": {to("PATCH", "Rest", "/test/orders/7", "Authorization: open sesame"), 200,
			[]string{`"principalId":"ada"`, `"tenant":"acme"`}},
		"REST, wrong word": {to("PATCH", "Rest", "/test/orders/7", "Authorization: open rice"), 403,
			[]string{"with an explicit deny"}},
		"REST, no word": {to("PATCH", "Rest", "/test/orders/7", "Authorization: open"), 401, nil},
		"REST, two":     {to("DELETE", "Rest", "/test/orders/7?who=me", sesame), 200, []string{`"tenant":"acme"`}},
		"REST, one":     {to("DELETE", "Rest", "/test/orders/7", sesame), 401, nil},
		"HTTP": {to("GET", "Http", "/open/7"), 200, []string{`"routeKey":"GET /open/{id}"`,
			`"accountId":"000000000000"`, `"apiId":"Shop-Http"`}},
		"HTTP, no route":                     {to("GET", "Http", "/open"), 404, nil},
		"HTTP, token":                        {to("GET", "Http", "/tokens", bearer), 200, []string{`"sub":"ada"`}},
		"HTTP, no token":                     {to("GET", "Http", "/tokens"), 401, nil},
		"HTTP, signed":                       {execute.sign(t, to("POST", "Http", "/signed")), 200, []string{signer}},
		"HTTP, a token where signatures are": {to("POST", "Http", "/signed", bearer), 403, nil},
		"HTTP, word": {to("GET", "Http", "/words", sesame), 200,
			[]string{`"authorizer":{"lambda":{"tenant":"acme"}}`}},
		"HTTP, wrong word": {to("GET", "Http", "/words", "X-Word: rice"), 403, []string{"Forbidden"}},
		"HTTP, no word":    {to("GET", "Http", "/words"), 401, nil},
		"URL": {to("PUT", "Public", "/any?x=1"), 200,
			[]string{`"routeKey":"$default"`, `"rawPath":"/any"`, `"accountId":"anonymous"`}},
		"URL, signed":     {signing{}.sign(t, to("PUT", "Private", "/any?b=2&a=1")), 200, []string{signer}},
		"URL, not signed": {to("PUT", "Private", "/any"), 403, []string{`{"Message":"Forbidden"}`}},
	} {
		status, body := send(t, c.request)
		require.Equal(t, c.status, status, "%s: %s\n%s", name, body, out)
		for _, want := range c.want {
			require.Contains(t, body, want, name)
		}
	}
}

// A signature is that of this request, now, for this service. Any other is refused, and the output has the reason.
func TestSignatures(t *testing.T) {
	r, out := started(t, apis, Options{})
	url := r.Endpoints.APIs["Shop-Private"] + "/orders%20of/acme%2Fblue?b=2&a=1"
	sent := func(s signing) *http.Request { return s.sign(t, newRequest(t, "POST", url, `{"order":1}`)) }
	change := func(r *http.Request, change func(*http.Request)) *http.Request { change(r); return r }
	for name, c := range map[string]struct {
		request *http.Request
		reason  string // empty: it is right
	}{
		"right":            {sent(signing{}), ""},
		"a header":         {signing{}.sign(t, newRequest(t, "POST", url, "x", "X-Tenant: acme", "X-Amz-Meta: a  b")), ""},
		"no body":          {signing{}.sign(t, newRequest(t, "GET", url, "")), ""},
		"four minutes ago": {sent(signing{at: time.Now().Add(-4 * time.Minute)}), ""},
		"another body": {change(sent(signing{}), func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(`{"order":2}`))
		}), "its signature is that of another request, or of another secret"},
		"another path": {change(sent(signing{}), func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/x", "" }),
			"another request"},
		"another query":  {change(sent(signing{}), func(r *http.Request) { r.URL.RawQuery = "b=2&a=2" }), "another request"},
		"another method": {change(sent(signing{}), func(r *http.Request) { r.Method = "PUT" }), "another request"},
		"another secret": {sent(signing{secret: "guessed"}), "another request, or of another secret"},
		"another key": {change(sent(signing{}), func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), AccessKey, "AKIA", 1))
		}), "it is signed with another access key than idemlocal"},
		"none":    {newRequest(t, "POST", url, "x"), "it is not signed (Signature Version 4)"},
		"no date": {change(sent(signing{}), func(r *http.Request) { r.Header.Del("X-Amz-Date") }), "it is not signed"},
		"malformed": {newRequest(t, "POST", url, "x", "Authorization: AWS4-HMAC-SHA256 Credential=,Signature"),
			"it is not signed"},
		"expired": {sent(signing{at: time.Now().Add(-time.Hour)}), "its signature is older than five minutes"},
		"another service": {sent(signing{service: "execute-api"}),
			"it is signed for execute-api in us-east-1, and this is lambda in us-east-1"},
		"another region": {sent(signing{region: "eu-west-1"}), "it is signed for lambda in eu-west-1"},
		"in the query": {sent(signing{query: true}),
			"its signature is in the query, and only one in the headers is checked here"},
	} {
		before := len(out.String())
		status, body := send(t, c.request)
		if c.reason == "" {
			require.Equal(t, http.StatusOK, status, "%s: %s", name, out)
			require.Contains(t, body, `"userId":"AIDAIDEMLOCAL"`, name)
			continue
		}
		require.Equal(t, http.StatusForbidden, status, name)
		require.Contains(t, out.String()[before:], "Shop/Private: ", name)
		require.Contains(t, out.String()[before:], c.reason, name)
	}
}

func TestAPIsThatAreRefused(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"ResourceId: !Ref AnOrder, HttpMethod: GET", "ResourceId: none, HttpMethod: GET"}://
		"Shop/GetOrder (AWS::ApiGateway::Method): there is no resource none",
		{"HttpMethod: PUT", "HttpMethod: GET"}://
		"Shop/PutOrder (AWS::ApiGateway::Method): another method is GET /orders/{id} too",
		{"HttpMethod: PUT", "HttpMethod: PUT, ApiKeyRequired: true"}://
		"Shop/PutOrder (AWS::ApiGateway::Method): keys of APIs do not run here",
		{"HttpMethod: OPTIONS", "HttpMethod: GET"}://
		"Shop/Preflight (AWS::ApiGateway::Method): an integration MOCK does not run here, only AWS_PROXY",
		{"AuthorizerId: !Ref Token", "AuthorizerId: !Ref Pool"}://
		`Shop/PatchOrder (AWS::ApiGateway::Method): its authorizer "Shop-Pool" is none of its API that is a function`,
		{"AuthorizerId: !Ref Request", "AuthorizerId: !Ref Simple"}://
		`Shop/DeleteOrder (AWS::ApiGateway::Method): its authorizer "Shop-Simple" is none of its API that is a function`,
		{"AuthorizationType: AWS_IAM", "AuthorizationType: MAGIC"}://
		"Shop/PutOrder (AWS::ApiGateway::Method): there is no authorization MAGIC",
		{"Name: pool, Type: COGNITO_USER_POOLS", "Name: pool, Type: POOLS"}://
		`Shop/Pool (AWS::ApiGateway::Authorizer): there is no authorizer of the type "POOLS"`,
		{`"^open .*"`, `"(open"`}://
		"Shop/Token (AWS::ApiGateway::Authorizer): IdentityValidationExpression: error parsing regexp",
		{"method.request.querystring.who", "context.domainName"}://
		"Shop/Request (AWS::ApiGateway::Authorizer): the identity source context.domainName does not run here",
		{"AuthorizerUri: !GetAtt Echo.Arn", "AuthorizerUri: arn:aws:lambda:us-east-1:1:function:none"}://
		"Shop/Http: the route GET /words has no authorizer: there is no function none",
		{`PayloadFormatVersion: "2.0"}`, `PayloadFormatVersion: "1.0"}`}://
		"Shop/Integration (AWS::ApiGatewayV2::Integration): an integration AWS_PROXY with the payload format 1.0 does",
		{"RouteKey: POST /signed", "RouteKey: GET /tokens"}://
		"another route of Http is GET /tokens too",
		{"IntegrationUri: !Ref Live", "IntegrationUri: arn:aws:lambda:us-east-1:1:function:none"}://
		"Shop/Http: the route GET /words has no function: there is no none",
	} {
		require.Contains(t, apis, change[0])
		_, err := read(t, strings.Replace(apis, change[0], change[1], 1), nil)
		require.ErrorContains(t, err, want, change[1])
	}
}
