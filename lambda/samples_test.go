package idemlambda

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/stretchr/testify/require"
)

func decoded[E any](t testing.TB, name string) (event E) {
	t.Helper()
	require.NoError(t, json.Unmarshal(sourceSample(t, name), &event))
	return event
}

// given is a response with everything in it that a gateway may know.
func given() *idemhttp.Response {
	return &idemhttp.Response{
		Status:  201,
		Headers: map[string]string{"content-type": "application/json", "X-Charge": "ch_1", "Set-Cookie": "a=b"},
		Body:    []byte(base64.StdEncoding.EncodeToString([]byte(`{"id":"ch_1"}`))),
		Base64:  true,
	}
}

// maker makes a function that counts its executions.
type maker = func(*idem.Engine, idemhttp.Routes, idemhttp.TenantFunc, *idemhttp.Options, *int) any

func counting[E, R any](wrap adapter[E, R], answer func(E) R) maker {
	return func(e *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options, n *int) any {
		return wrap(e, routes, tenant, o, func(_ context.Context, event E) (R, error) {
			*n++
			return answer(event), nil
		})
	}
}

// functions make a function for each kind of event, which is the beginning of its samples' names.
var functions = map[string]maker{
	"apigw-v2": counting(HTTPAPI, func(events.APIGatewayV2HTTPRequest) events.APIGatewayV2HTTPResponse {
		res := given()
		res.MultiHeaders = map[string][]string{"Vary": {"Accept", "Origin"}}
		res.Cookies = []string{"session=1; HttpOnly"}
		return toV2(nil, nil, res)
	}),
	"apigw-v1": counting(RESTAPI, func(events.APIGatewayProxyRequest) events.APIGatewayProxyResponse {
		res := given()
		res.MultiHeaders = map[string][]string{"Vary": {"Accept", "Origin"}, "Set-Cookie": {"a=b", "c=d"}}
		return toV1(nil, nil, res)
	}),
	"furl": counting(FunctionURL, func(events.LambdaFunctionURLRequest) events.LambdaFunctionURLResponse {
		res := given()
		res.Cookies = []string{"session=1; HttpOnly"}
		return toURL(nil, nil, res)
	}),
	"alb": counting(ALB, func(e events.ALBTargetGroupRequest) events.ALBTargetGroupResponse {
		res := given()
		out := events.ALBTargetGroupResponse{StatusCode: res.Status, StatusDescription: "201 Made", Body: string(res.Body),
			IsBase64Encoded: true}
		if e.MultiValueHeaders == nil {
			out.Headers = res.Headers
		} else {
			out.MultiValueHeaders = map[string][]string{"Content-Type": {"application/json"}, "Vary": {"Accept", "Origin"},
				"Set-Cookie": {"a=b", "c=d"}}
		}
		return out
	}),
}

func functionOf(t testing.TB, sample string) maker {
	for kind, f := range functions {
		if strings.HasPrefix(sample, kind) {
			return f
		}
	}
	t.Fatalf("no function takes the sample %s", sample)
	return nil
}

// isHTTP tells the samples of requests from those of messages.
func isHTTP(sample string) bool {
	return strings.HasPrefix(sample, "apigw-") || strings.HasPrefix(sample, "furl-") || strings.HasPrefix(sample, "alb-")
}

// tenantsOfSamples says whose request each sample is.
var tenantsOfSamples = map[string]idemhttp.TenantFunc{
	"apigw-v2-jwt":           idemhttp.Claim("custom:tenant_id"),
	"apigw-v2-iam":           idemhttp.IAMAccount,
	"apigw-v2-lambda-simple": idemhttp.AuthorizerValue("maxAmount"),
	"apigw-v2-lambda-policy": idemhttp.AuthorizerValue("tenantId"),
	"apigw-v1-cognito":       idemhttp.Claim("custom:tenant_id"),
	"apigw-v1-api-key":       idemhttp.APIKey,
	"apigw-v1-iam":           idemhttp.IAMUser,
	"apigw-v1-lambda":        idemhttp.AuthorizerValue("tenantId"),
	"furl-iam":               idemhttp.IAMUser,
}

// Every sample of a request, as raw JSON through aws-lambda-go: what the function answers the first time, the second
// time, and to another input; and without a tenant where one is required.
func TestSamples(t *testing.T) {
	seen := 0
	for _, name := range samples.Names() {
		if !isHTTP(name) {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			tenant := tenantsOfSamples[name]
			if tenant == nil {
				tenant = idemhttp.SingleTenant
			}
			raw := sourceSample(t, name)
			answers, n := tell(t, name, raw, tenant)
			require.Equal(t, 1, n)
			golden(t, "samples/"+name+".json", answers)

			refused, n := tell(t, name, raw, func(context.Context, *idemhttp.Request) (string, error) { return "", nil })
			require.Zero(t, n)
			require.Contains(t, string(refused.First), string(idemhttp.CodeTenantMissing))
		})
	}
	require.Equal(t, 23, seen)
}

// answers is what a function answers.
type answers struct{ First, Second, Reused json.RawMessage }

func tell(t *testing.T, name string, raw []byte, tenant idemhttp.TenantFunc) (s answers, n int) {
	t.Helper()
	h := lambda.NewHandler(functionOf(t, name)(newEngine(t, memory()),
		idemhttp.Routes{"POST /payments": charge}, tenant, nil, &n))
	invoke := func(payload []byte) json.RawMessage {
		out, err := h.Invoke(t.Context(), payload)
		require.NoError(t, err)
		return slices.Clone(out) // aws-lambda-go uses its buffer again
	}
	other := decoded[map[string]any](t, name)
	other["body"], other["isBase64Encoded"] = `{"amount":1}`, false
	changed, err := json.Marshal(other)
	require.NoError(t, err)
	s.First, s.Second = invoke(raw), invoke(raw)
	s.Reused = invoke(changed)
	return s, n
}

// requestOf is the neutral request of a sample.
func requestOf(t testing.TB, name string) *idemhttp.Request {
	t.Helper()
	switch {
	case strings.HasPrefix(name, "apigw-v2"):
		return requestOfV2(new(decoded[events.APIGatewayV2HTTPRequest](t, name)))
	case strings.HasPrefix(name, "apigw-v1"):
		return requestOfV1(new(decoded[events.APIGatewayProxyRequest](t, name)))
	case strings.HasPrefix(name, "furl"):
		return requestOfURL(new(decoded[events.LambdaFunctionURLRequest](t, name)))
	}
	return requestOfALB(new(decoded[events.ALBTargetGroupRequest](t, name)))
}

func TestIdentitiesOfTheSamples(t *testing.T) {
	for _, c := range []struct {
		sample string
		tenant idemhttp.TenantFunc
		want   string
	}{
		{"apigw-v2-jwt", idemhttp.Claim("custom:tenant_id"), "tenant-blue"},
		{"apigw-v2-jwt", idemhttp.Claim("sub"), "2f4c8d1a-6a3e-4e8e-9b57-6d0f1c2e3a4b"},
		{"apigw-v2-lambda-simple", idemhttp.AuthorizerValue("tenantId"), "tenant-blue"},
		{"apigw-v2-lambda-simple", idemhttp.AuthorizerValue("maxAmount"), "100000"},
		{"apigw-v2-lambda-simple", idemhttp.AuthorizerValue("sandbox"), ""},
		{"apigw-v2-lambda-policy", idemhttp.AuthorizerValue("tenantId"), "tenant-green"},
		{"apigw-v2-iam", idemhttp.IAMAccount, "444455556666"},
		{"apigw-v2-iam", idemhttp.IAMUser, "AROAEXAMPLEEXAMPLE01"},
		{"apigw-v2-none", idemhttp.Claim("sub"), ""},
		{"apigw-v2-none", idemhttp.IAMAccount, ""},
		{"apigw-v2-none", idemhttp.AuthorizerValue("tenantId"), ""},
		{"apigw-v2-jwt", idemhttp.IAMAccount, ""},
		{"apigw-v1-cognito", idemhttp.Claim("custom:tenant_id"), "tenant-blue"},
		{"apigw-v1-cognito", idemhttp.Claim("sub"), "2f4c8d1a-6a3e-4e8e-9b57-6d0f1c2e3a4b"},
		{"apigw-v1-cognito", idemhttp.AuthorizerValue("claims"), ""},
		{"apigw-v1-cognito", idemhttp.APIKey, ""},
		{"apigw-v1-lambda", idemhttp.AuthorizerValue("tenantId"), "tenant-green"},
		{"apigw-v1-lambda", idemhttp.AuthorizerValue("principalId"), "user|9f2c"},
		{"apigw-v1-lambda", idemhttp.Claim("tenantId"), ""},
		{"apigw-v1-api-key", idemhttp.APIKey, "q9w8e7r6t5"},
		{"apigw-v1-iam", idemhttp.IAMAccount, "444455556666"},
		{"apigw-v1-iam", idemhttp.IAMUser, "AROAEXAMPLEEXAMPLE01"},
		{"apigw-v1-iam", idemhttp.CognitoIdentity, ""},
		{"apigw-v1-none", idemhttp.IAMAccount, ""},
		{"apigw-v1-none", idemhttp.IAMUser, ""},
		{"furl-iam", idemhttp.IAMAccount, "111122223333"},
		{"furl-iam", idemhttp.IAMUser, "AIDAEXAMPLEEXAMPLE02"},
		{"furl-none", idemhttp.IAMAccount, ""},
		{"furl-none", idemhttp.LambdaTenant, ""},
		{"alb-single", idemhttp.Claim("sub"), ""},
	} {
		got, err := c.tenant(t.Context(), requestOf(t, c.sample))
		if c.want == "" {
			require.ErrorIs(t, err, idemhttp.ErrTenantMissing, c.sample)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

// An event of another format has its method elsewhere. Passing it on would protect nothing.
func TestEventsOfAnotherFormat(t *testing.T) {
	for kind, other := range map[string]string{
		"apigw-v2": "apigw-v1-none", "furl": "alb-single", "apigw-v1": "apigw-v2-none", "alb": "furl-none",
	} {
		for _, shadow := range []bool{false, true} {
			op, n := charge, 0
			op.Shadow = shadow
			_, err := lambda.NewHandler(functions[kind](newEngine(t, memory()), idemhttp.AnyRoute(op),
				idemhttp.SingleTenant, nil, &n)).Invoke(t.Context(), sourceSample(t, other))
			if shadow {
				require.NoError(t, err, kind)
				require.Equal(t, 1, n, kind)
				continue
			}
			require.ErrorContains(t, err, "the event has no method, so it is of another format", kind)
			require.Zero(t, n, kind)
		}
	}
}

// sqsStory is what a function makes of a batch.
type sqsStory struct {
	Response json.RawMessage
	Outcomes []sqsLine
}

type sqsLine struct {
	Message, Record string
	Reason          Reason
	Error           string `json:",omitempty"`
	Attempt         int
	Duplicate       bool
}

// The samples as raw JSON through aws-lambda-go: what the function answers the
// first time, the second time, and with a message that fails.
func TestSQSSamples(t *testing.T) {
	for sample, keys := range map[string]map[string]SQSKeyFunc{
		"sqs-standard": {"attribute": SQSAttribute(idem.SingleTenant, SQSKeyAttribute),
			"pointer": SQSPointer(idem.SingleTenant, "/paymentId"), "message": SQSMessageID(idem.SingleTenant)},
		"sqs-fifo": {"deduplication": SQSDeduplicationID(idem.SingleTenant),
			"pointer": SQSPointer("/currency", "/paymentId")},
	} {
		raw := sourceSample(t, sample)
		for name, key := range keys {
			t.Run(sample+" "+name, func(t *testing.T) {
				var seen reports
				broken := ""
				h := lambda.NewHandler(SQS(newEngine(t, memory()), charge, key, &SQSOptions{OnOutcome: seen.hook, Concurrency: 1},
					func(ctx context.Context, p payment) error {
						m, ok := SQSMessageOf(ctx)
						require.True(t, ok)
						require.Contains(t, m.Body, p.ID)
						if p.ID == broken {
							return errors.New("provider is down")
						}
						return nil
					}))
				tell := func() sqsStory {
					seen.all = nil
					out, err := h.Invoke(t.Context(), raw)
					require.NoError(t, err)
					s := sqsStory{Response: slices.Clone(out)}
					for _, o := range seen.all {
						line := sqsLine{Message: o.Event.MessageId, Record: o.RecordID, Reason: o.Reason, Attempt: o.Attempt,
							Duplicate: o.Duplicate}
						if o.Err != nil {
							line.Error = o.Err.Error()
						}
						s.Outcomes = append(s.Outcomes, line)
					}
					return s
				}
				broken = "pay_7Q2M9X4K"
				first := tell()
				broken = ""
				golden(t, "samples/"+sample+"-"+name+".json", []sqsStory{first, tell(), tell()})
			})
		}
	}
}

func TestRequestOfAnEvent(t *testing.T) {
	e := sample(t, "apigw-v2-repeated-headers")
	r := requestOfV2(&e)
	require.Equal(t, "POST", r.Method)
	require.Equal(t, "/payments", r.Route)
	require.Equal(t, map[string][]string{"expand": {"customer", "items"}, "dryRun": {"false"}}, r.Query)
	require.Equal(t, []string{"web,checkout,eu"}, r.Header["x-tag"])
	require.Len(t, r.Header, len(e.Headers))
	for name, value := range e.Headers {
		require.Equal(t, []string{value}, r.Header[name])
	}

	// What hand-made events leave out.
	bare := requestOfV2(&events.APIGatewayV2HTTPRequest{RouteKey: "PATCH /a/{id}",
		QueryStringParameters: map[string]string{"a": "1,2"}})
	require.Equal(t, "PATCH", bare.Method)
	require.Equal(t, "/a/{id}", bare.Route)
	require.Equal(t, map[string][]string{"a": {"1,2"}}, bare.Query)
	require.Empty(t, requestOfV2(&events.APIGatewayV2HTTPRequest{RouteKey: "ANY /a"}).Method)
	require.Equal(t, "a=%zz", requestOfV2(&events.APIGatewayV2HTTPRequest{RawQueryString: "a=%zz"}).RawQuery)
}

// What the contract looks up: the template that the API has matched, and the path without its stage or base.
func TestRoutesOfAnHTTPAPI(t *testing.T) {
	const own = "a1.execute-api.eu-central-1.amazonaws.com"
	for _, c := range []struct {
		name, routeKey, path, stage, domain string
		parameters                          map[string]string
		route, want                         string
	}{
		{"template", "POST /payments", "/payments", "$default", "", nil, "/payments", "/payments"},
		{"any method", "ANY /payments", "/payments", "$default", "", nil, "/payments", "/payments"},
		{"default", "$default", "/payments", "$default", "", nil, "", "/payments"},
		{"default in a stage", "$default", "/prod/payments", "prod", own, nil, "", "/payments"},
		{"default, custom domain", "$default", "/payments", "prod", "api.example.com", nil, "", "/payments"},
		{"path like a stage", "$default", "/prod/payments", "prod", "api.example.com", nil, "", "/prod/payments"},
		{"only a prefix", "$default", "/production/payments", "prod", own, nil, "", "/production/payments"},
		{"stage alone", "$default", "/prod", "prod", own, nil, "", "/"},
		{"proxy", "ANY /{proxy+}", "/payments", "$default", "", nil, "/{proxy+}", "/payments"},
		{"behind a domain", "ANY /{proxy+}", "/billing/payments", "prod", "api.example.com",
			map[string]string{"proxy": "payments"}, "/{proxy+}", "/payments"},
		{"a percent sign", "POST /payments/{id}", "/payments/100%", "$default", "", // it is decoded already
			map[string]string{"id": "100%"}, "/payments/{id}", "/payments/100%"},
	} {
		e := sample(t, "apigw-v2-none")
		e.RouteKey, e.RawPath, e.PathParameters = c.routeKey, c.path, c.parameters
		e.RequestContext.Stage, e.RequestContext.DomainName, e.RequestContext.APIID = c.stage, c.domain, "a1"
		r := requestOfV2(&e)
		require.Equal(t, []string{c.route, c.want, c.stage}, []string{r.Route, r.Path, r.Stage}, c.name)
	}
}
