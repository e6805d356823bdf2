package idemlambda

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	"github.com/stretchr/testify/require"
)

// plainSamples are one sample of each kind of event.
var plainSamples = []string{"apigw-v2-none", "apigw-v1-none", "furl-none", "alb-single", "alb-multi"}

// opened is a sample's function, which counts its runs. It is asked with a change of the sample.
func opened(t *testing.T, e *idem.Engine, name string, tenant idemhttp.TenantFunc) (
	ask func(context.Context, func(event map[string]any)) answerTo, runs *int) {
	t.Helper()
	runs = new(int)
	h := lambda.NewHandler(functionOf(t, name)(e, idemhttp.AnyRoute(charge), tenant, nil, runs))
	return func(ctx context.Context, change func(map[string]any)) (a answerTo) {
		t.Helper()
		event := decoded[map[string]any](t, name)
		if change != nil {
			change(event)
		}
		raw, err := json.Marshal(event)
		require.NoError(t, err)
		out, err := h.Invoke(ctx, raw)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &a))
		return a
	}, runs
}

// answerTo is what a gateway's function answers.
type answerTo struct {
	StatusCode        int
	Headers           map[string]string
	MultiValueHeaders map[string][]string
	Body              string
	IsBase64Encoded   bool
}

func (a answerTo) header(name string) string {
	if v := a.MultiValueHeaders[name]; len(v) > 0 {
		return strings.Join(v, ", ")
	}
	return a.Headers[name]
}

// The same body is the same request, as text or as Base64 of the gateway's own. Header names count in any
// case, and missing optional fields do no harm.
func TestFormsOfTheSameRequest(t *testing.T) {
	for what, change := range map[string]func(map[string]any){
		"Base64": func(e map[string]any) {
			e["body"], e["isBase64Encoded"] = base64.StdEncoding.EncodeToString([]byte(e["body"].(string))), true
		},
		"spellings and gaps": func(e map[string]any) {
			for _, field := range []string{"headers", "multiValueHeaders"} {
				header, _ := e[field].(map[string]any)
				for k, v := range maps.Clone(header) {
					delete(header, k)
					if strings.EqualFold(k, "Idempotency-Key") || strings.EqualFold(k, "Content-Type") {
						header[strings.ToUpper(k)] = v
					}
				}
			}
			for _, field := range []string{"stageVariables", "pathParameters", "version", "cookies", "isBase64Encoded"} {
				delete(e, field)
			}
		},
	} {
		for _, name := range plainSamples {
			ask, runs := opened(t, newEngine(t, memory()), name, idemhttp.SingleTenant)
			require.Equal(t, 201, ask(t.Context(), nil).StatusCode)
			require.Equal(t, "true", ask(t.Context(), change).header(idemhttp.HeaderReplayed), "%s of %s", what, name)
			require.Equal(t, 1, *runs)
		}
	}
	require.Equal(t, "no base64", string(bodyOf("no base64", true)))
}

// What a gateway cannot return is an outcome without a response, for the first caller and for all
// others: a 502 would be sent again for a day, and its client would never hear that it took effect.
// What it can return live, it can return with the marks of a replay.
func TestResponsesThatAGatewayCannotReturn(t *testing.T) {
	const httpAPI, alb = "apigw-v2-none", "alb-multi"
	limits := map[string]int{httpAPI: 6_291_556, alb: 1 << 20}
	overhead := map[string]int{}
	serve := func(t *testing.T, name, body string) (answers []answerTo, largest, ran int) {
		h := map[string]maker{
			httpAPI: counting(HTTPAPI, func(events.APIGatewayV2HTTPRequest) events.APIGatewayV2HTTPResponse {
				return events.APIGatewayV2HTTPResponse{StatusCode: 201, Body: body}
			}),
			alb: counting(ALB, func(events.ALBTargetGroupRequest) events.ALBTargetGroupResponse {
				return events.ALBTargetGroupResponse{StatusCode: 201, Body: body}
			}),
		}[name](newEngine(t, memory()), idemhttp.AnyRoute(charge), idemhttp.SingleTenant, nil, &ran)
		for range 2 {
			out, err := lambda.NewHandler(h).Invoke(t.Context(), sourceSample(t, name))
			require.NoError(t, err)
			var a answerTo
			require.NoError(t, json.Unmarshal(out, &a))
			answers, largest = append(answers, a), max(largest, len(out))
		}
		return answers, largest, ran
	}
	for name := range limits {
		_, largest, _ := serve(t, name, "")
		overhead[name] = largest
	}
	for name, limit := range limits {
		for what, c := range map[string]struct {
			body   string
			status int
		}{
			"small":                {"{}", 201},
			"up to the limit":      {strings.Repeat("x", limit-overhead[name]-roomForMarks), 201},
			"of HTML":              {strings.Repeat("<p>", limit/4), 201},
			"over it as a replay":  {strings.Repeat("x", limit-overhead[name]+30), 409},
			"over it":              {strings.Repeat("x", limit), 409},
			"over it when encoded": {strings.Repeat("\x01", limit/5), 409},
			"over it in Base64":    {strings.Repeat("\xff", limit*4/5), 409},
		} {
			answers, largest, ran := serve(t, name, c.body)
			require.Equal(t, 1, ran)
			require.LessOrEqual(t, largest, limit, "%s, %s", name, what)
			for _, a := range answers {
				require.Equal(t, c.status, a.StatusCode, "%s, %s", name, what)
				if c.status == 409 {
					require.Contains(t, a.Body, `"code":"outcome_unavailable"`)
					require.Contains(t, a.Body, `"recorded_status":201`)
				}
			}
		}
	}
}

// A function with tenant isolation knows its tenant from the invocation.
func TestTenantOfTheInvocation(t *testing.T) {
	for _, name := range plainSamples {
		ask, runs := opened(t, newEngine(t, memory()), name, idemhttp.LambdaTenant)
		for i, tenant := range []string{"blue", "green", "blue", ""} {
			ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{TenantID: tenant})
			require.Equal(t, []int{201, 201, 201, 403}[i], ask(ctx, nil).StatusCode, name)
		}
		require.Equal(t, 403, ask(t.Context(), nil).StatusCode)
		require.Equal(t, 2, *runs)
	}
}

// held is a store in which a duplicate stays in flight.
type held struct {
	occupied
	seen *idem.Record
}

func (s *held) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	err := s.occupied.Acquire(ctx, now, c)
	var conflict *protocol.ConflictError
	if errors.As(err, &conflict) {
		s.seen = conflict.Existing
	}
	return err
}

func (s *held) Get(context.Context, string) (*idem.Record, error) { return s.seen, nil }

// A wait for the duplicate ends before the gateway gives up, and counts from when the gateway got the request.
func TestWaitEndsBeforeTheGatewayDoes(t *testing.T) {
	for name, limit := range map[string]time.Duration{
		"apigw-v2-none": 30 * time.Second, "apigw-v1-none": 29 * time.Second, "alb-single": time.Minute,
		"furl-none": 10 * time.Minute,
	} {
		for _, cold := range []time.Duration{0, 10 * time.Second, -20 * time.Second, 24 * time.Hour} {
			t.Run(name+"/"+cold.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &held{occupied: occupied{memory(),
						idem.Record{State: idem.InProgress, LeaseUntil: time.Now().Add(time.Hour)}}}
					engine, err := idem.New(store, &idem.Options{Wait: 10 * time.Minute})
					require.NoError(t, err)
					ask, _ := opened(t, engine, name, idemhttp.SingleTenant)
					start := time.Now()
					received := float64(start.Add(-cold).UnixMilli())
					require.Equal(t, 409, ask(t.Context(), func(e map[string]any) {
						c := e["requestContext"].(map[string]any)
						c["timeEpoch"], c["requestTimeEpoch"] = received, received
					}).StatusCode)
					waited := time.Since(start)
					if name != "apigw-v2-none" && name != "apigw-v1-none" || cold != 10*time.Second {
						cold = 0 // the event does not tell, clocks differ, or it is made by hand
					}
					require.Less(t, waited, limit-cold)
					require.Greater(t, waited, limit-cold-5*time.Second)
				})
			})
		}
	}
}

// The handler's own error reaches the runtime as it is, also with a response, and a recorded
// failure reports what the first one did.
func TestErrorsReachTheRuntime(t *testing.T) {
	own := errors.New("own")
	for _, gateway := range []string{"HTTPAPI", "RESTAPI", "FunctionURL", "ALB"} {
		for _, res := range []*idemhttp.Response{{}, {Status: 500}} {
			n, given := 0, error(nil)
			serve := entryPoints[gateway].open(t, newEngine(t, memory()), idemhttp.AnyRoute(charge), nil,
				func(context.Context) (*idemhttp.Response, error) {
					n++
					return res, given
				})
			for _, method := range []string{"POST", "GET"} {
				n, given = 0, own
				_, err := serve(t.Context(), post(contract.Method(method)))
				require.True(t, err == own, "%s %s", gateway, method)
				require.Equal(t, 1, n)
			}
		}
	}
}

// Bytes that a net/http handler has recorded come through every gateway: an event's JSON cannot hold them as text.
func TestBytesOfAnotherGateway(t *testing.T) {
	const picture = "\x89PNG\r\n\x1a\n\xff\x00"
	for _, name := range plainSamples {
		engine := newEngine(t, memory())
		served, err := idemhttp.New(engine, idemhttp.AnyRoute(charge), idemhttp.SingleTenant, nil)
		require.NoError(t, err)
		_, err = served.Serve(t.Context(), requestOf(t, name), func(context.Context) (*idemhttp.Response, error) {
			return &idemhttp.Response{Status: 200, Body: []byte(picture)}, nil
		})
		require.NoError(t, err)
		ask, runs := opened(t, engine, name, idemhttp.SingleTenant)
		a := ask(t.Context(), nil)
		require.True(t, a.IsBase64Encoded, name)
		require.Equal(t, base64.StdEncoding.EncodeToString([]byte(picture)), a.Body)
		require.Zero(t, *runs)
	}
}

func TestRESTRequest(t *testing.T) {
	r := requestOf(t, "apigw-v1-repeated-headers")
	require.Equal(t, []string{"web", "checkout", "eu"}, r.Header["X-Tag"])
	require.Equal(t, []string{"customer", "items"}, r.Query["expand"])

	proxied := requestOf(t, "apigw-v1-custom-domain")
	require.Equal(t, "/{proxy+}", proxied.Route)
	require.Equal(t, "/payments", proxied.Path)
	require.Equal(t, map[string]string{"proxy": "payments"}, proxied.PathParameters)

	// What hand-made events leave out.
	bare := requestOfV1(&events.APIGatewayProxyRequest{
		Path: "/a/1", Headers: map[string]string{"X-A": "1"}, QueryStringParameters: map[string]string{"q": "1,2"},
		RequestContext: events.APIGatewayProxyRequestContext{HTTPMethod: "PATCH", ResourcePath: "/a/{id}"},
	})
	require.Equal(t, "PATCH", bare.Method)
	require.Equal(t, "/a/{id}", bare.Route)
	require.Equal(t, map[string][]string{"X-A": {"1"}}, bare.Header)
	require.Equal(t, map[string][]string{"q": {"1,2"}}, bare.Query)
	empty := requestOfV1(&events.APIGatewayProxyRequest{})
	require.Empty(t, empty.Path)
	require.Empty(t, empty.Header)

	// An HTTP API that sends payload 1.0.
	e := &events.APIGatewayProxyRequest{Resource: "$default", Path: "/prod/payments"}
	e.RequestContext.Stage, e.RequestContext.APIID, e.RequestContext.DomainName = "prod", "a1",
		"a1.execute-api.eu-central-1.amazonaws.com"
	e.RequestContext.Authorizer = map[string]any{"claims": map[string]any{"sub": "anna", "level": 3.0}, "scopes": nil}
	r = requestOfV1(e)
	require.Empty(t, r.Route)
	require.Equal(t, "/payments", r.Path)
	require.Equal(t, "prod", r.Stage)
	require.Equal(t, map[string]string{"sub": "anna"}, r.Identity.Claims)
	require.Nil(t, r.Identity.Authorizer)
}

// Several values become one line where the gateway has no other way.
func TestJoinedHeaders(t *testing.T) {
	res := &idemhttp.Response{
		Headers:      map[string]string{"A": "1", "vary": "never"},
		MultiHeaders: map[string][]string{"Vary": {"Accept", "Origin"}, "Set-Cookie": {"a=b", "c=d"}, "X-None": {}},
	}
	require.Equal(t, map[string]string{"A": "1", "Vary": "Accept, Origin", "Set-Cookie": "c=d"}, joined(res))
	require.Equal(t, map[string][]string{
		"A": {"1"}, "Vary": {"Accept", "Origin"}, "Set-Cookie": {"a=b", "c=d"}, "X-None": {},
	}, spread(res))
	require.Nil(t, joined(&idemhttp.Response{}))
	require.Equal(t, "Accept, Origin", toURL(nil, nil, res).Headers["Vary"])
}

// The balancer passes query parameters on as they came.
func TestALBQuery(t *testing.T) {
	single := requestOfALB(&events.ALBTargetGroupRequest{QueryStringParameters: map[string]string{"a%20b": "c%2Cd",
		"e": "f+g", "bad": "%zz"}})
	require.Equal(t, map[string][]string{"a b": {"c,d"}, "e": {"f g"}}, single.Query)
	require.Equal(t, "&bad=%zz", single.RawQuery)
	// No name that can be decoded looks like one that cannot.
	require.Equal(t, map[string][]string{"": {"bad=%zz"}},
		requestOfALB(&events.ALBTargetGroupRequest{QueryStringParameters: map[string]string{"": "bad%3D%25zz"}}).Query)
	for range 20 {
		multi := requestOfALB(&events.ALBTargetGroupRequest{
			MultiValueQueryStringParameters: map[string][]string{"a": {"3", "%34"}, "%61": {"1", "2"}}})
		require.Equal(t, map[string][]string{"a": {"1", "2", "3", "4"}}, multi.Query)
	}
}

// The balancer answers with 502 where the map of its mode is null.
func TestALBResponseHasItsMap(t *testing.T) {
	for _, multiValue := range []bool{false, true} {
		e := &events.ALBTargetGroupRequest{Headers: map[string]string{}}
		if multiValue {
			e = &events.ALBTargetGroupRequest{MultiValueHeaders: map[string][]string{}}
		}
		for _, given := range []events.ALBTargetGroupResponse{{}, {StatusCode: 204, StatusDescription: "204 Done"},
			{StatusCode: 200, StatusDescription: "200 OK"}} {
			out := toALB(e, &given, &idemhttp.Response{Status: 204})
			require.NotNil(t, out.Headers)
			require.NotNil(t, out.MultiValueHeaders)
			want := "204 No Content"
			if given.StatusCode == 204 {
				want = given.StatusDescription
			}
			require.Equal(t, want, out.StatusDescription)
		}
		out := toALB(e, new(events.ALBTargetGroupResponse),
			&idemhttp.Response{Status: 599, Headers: map[string]string{"A": "1"}})
		require.Equal(t, "599", out.StatusDescription)
		require.Equal(t, multiValue, len(out.MultiValueHeaders) == 1)
		require.Equal(t, !multiValue, len(out.Headers) == 1)
	}
}

func sample(t testing.TB, name string) events.APIGatewayV2HTTPRequest {
	t.Helper()
	return decoded[events.APIGatewayV2HTTPRequest](t, name)
}

// A tenant function of one's own reads the event.
func TestSourceIsTheEvent(t *testing.T) {
	byAPI := func(_ context.Context, r *idemhttp.Request) (string, error) {
		return r.Source.(*events.APIGatewayV2HTTPRequest).RequestContext.APIID, nil
	}
	ask, _ := opened(t, newEngine(t, memory()), "apigw-v2-none", byAPI)
	require.Equal(t, 201, ask(t.Context(), nil).StatusCode)
}
