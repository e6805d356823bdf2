package idemlambda

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// plainSamples are one sample of each kind of event.
var plainSamples = []string{"apigw-v2-none", "apigw-v1-none", "furl-none", "alb-single", "alb-multi"}

// changed is a sample's JSON with a change.
func changed(t *testing.T, name string, change func(event map[string]any)) []byte {
	t.Helper()
	raw, err := samples.Get(name)
	require.NoError(t, err)
	var event map[string]any
	require.NoError(t, json.Unmarshal(raw, &event))
	change(event)
	raw, err = json.Marshal(event)
	require.NoError(t, err)
	return raw
}

// answerTo is what a gateway's function answers.
type answerTo struct {
	StatusCode        int
	Headers           map[string]string
	MultiValueHeaders map[string][]string
	Body              string
}

func (a answerTo) header(name string) string {
	if v := a.MultiValueHeaders[name]; len(v) > 0 {
		return strings.Join(v, ", ")
	}
	return a.Headers[name]
}

func ask(t *testing.T, ctx context.Context, h lambda.Handler, raw []byte) (a answerTo) {
	t.Helper()
	out, err := h.Invoke(ctx, raw)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &a))
	return a
}

// The same body is the same request, as text or as Base64 of the gateway's own.
func TestBase64BodyIsTheClientsBody(t *testing.T) {
	for _, name := range plainSamples {
		n := 0
		h := lambda.NewHandler(functionOf(t, name)(newEngine(t, memory()), idemhttp.AnyRoute(charge), idemhttp.SingleTenant, nil, &n))
		require.Equal(t, 201, ask(t, t.Context(), h, changed(t, name, func(map[string]any) {})).StatusCode)
		again := ask(t, t.Context(), h, changed(t, name, func(e map[string]any) {
			e["body"], e["isBase64Encoded"] = base64.StdEncoding.EncodeToString([]byte(e["body"].(string))), true
		}))
		require.Equal(t, "true", again.header(idemhttp.HeaderReplayed), name)
		require.Equal(t, 1, n)
	}
	require.Equal(t, "no base64", string(bodyOf("no base64", true)))
}

// A key that was sent twice is refused wherever the gateway shows it.
func TestRepeatedKeyIsRefused(t *testing.T) {
	const one, two = "key-number-one-of-two", "key-number-two-of-two"
	for name, change := range map[string]func(map[string]any){
		"apigw-v2-none": func(e map[string]any) { e["headers"].(map[string]any)["idempotency-key"] = one + "," + two },
		"furl-none":     func(e map[string]any) { e["headers"].(map[string]any)["idempotency-key"] = one + "," + two },
		"apigw-v1-none": func(e map[string]any) {
			e["multiValueHeaders"].(map[string]any)["Idempotency-Key"] = []string{one, two}
		},
		// In another spelling.
		"apigw-v1-cognito": func(e map[string]any) { e["multiValueHeaders"].(map[string]any)["idempotency-key"] = []string{two} },
		"alb-multi": func(e map[string]any) {
			e["multiValueHeaders"].(map[string]any)["idempotency-key"] = []string{one, two}
		},
	} {
		n := 0
		h := lambda.NewHandler(functionOf(t, name)(newEngine(t, memory()), idemhttp.AnyRoute(charge), idemhttp.SingleTenant, nil, &n))
		a := ask(t, t.Context(), h, changed(t, name, change))
		require.Equal(t, 400, a.StatusCode, name)
		require.Contains(t, a.Body, idemhttp.CodeKeyInvalid)
		require.Zero(t, n)
	}
}

// Header names count in any case, and missing optional fields do no harm.
func TestSpellingsAndGaps(t *testing.T) {
	for _, name := range plainSamples {
		n := 0
		h := lambda.NewHandler(functionOf(t, name)(newEngine(t, memory()), idemhttp.AnyRoute(charge), idemhttp.SingleTenant, nil, &n))
		require.Equal(t, 201, ask(t, t.Context(), h, changed(t, name, func(map[string]any) {})).StatusCode)
		again := ask(t, t.Context(), h, changed(t, name, func(e map[string]any) {
			for _, field := range []string{"headers", "multiValueHeaders"} {
				header, ok := e[field].(map[string]any)
				if !ok {
					continue
				}
				few := map[string]any{}
				for k, v := range header {
					if strings.EqualFold(k, "Idempotency-Key") || strings.EqualFold(k, "Content-Type") {
						few[strings.ToUpper(k)] = v
					}
				}
				e[field] = few
			}
			for _, field := range []string{"stageVariables", "pathParameters", "version", "cookies", "isBase64Encoded"} {
				delete(e, field)
			}
		}))
		require.Equal(t, "true", again.header(idemhttp.HeaderReplayed), name)
		require.Equal(t, 1, n)
	}
}

// A function with tenant isolation knows its tenant from the invocation.
func TestTenantOfTheInvocation(t *testing.T) {
	for _, name := range plainSamples {
		n := 0
		h := lambda.NewHandler(functionOf(t, name)(newEngine(t, memory()), idemhttp.AnyRoute(charge), idemhttp.LambdaTenant, nil, &n))
		raw := changed(t, name, func(map[string]any) {})
		for _, tenant := range []string{"blue", "green", "blue", ""} {
			ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{TenantID: tenant})
			want := 201
			if tenant == "" {
				want = 403
			}
			require.Equal(t, want, ask(t, ctx, h, raw).StatusCode, name)
		}
		require.Equal(t, 403, ask(t, t.Context(), h, raw).StatusCode)
		require.Equal(t, 2, n)
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

// A wait for the duplicate ends before the gateway gives up, and counts from when the
// gateway got the request.
func TestWaitEndsBeforeTheGatewayDoes(t *testing.T) {
	for name, limit := range map[string]time.Duration{
		"apigw-v2-none": 30 * time.Second, "apigw-v1-none": 29 * time.Second, "alb-single": time.Minute, "furl-none": 10 * time.Minute,
	} {
		for _, cold := range []time.Duration{0, 10 * time.Second} {
			t.Run(name+"/"+cold.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &held{occupied: occupied{memory(), idem.Record{State: idem.InProgress, LeaseUntil: time.Now().Add(time.Hour)}}}
					engine, err := idem.New(store, &idem.Options{Wait: 10 * time.Minute})
					require.NoError(t, err)
					n := 0
					h := lambda.NewHandler(functionOf(t, name)(engine, idemhttp.AnyRoute(charge), idemhttp.SingleTenant, nil, &n))
					received := float64(time.Now().Add(-cold).UnixMilli())
					raw := changed(t, name, func(e map[string]any) {
						c := e["requestContext"].(map[string]any)
						c["timeEpoch"], c["requestTimeEpoch"] = received, received
					})
					start := time.Now()
					require.Equal(t, 409, ask(t, t.Context(), h, raw).StatusCode)
					waited := time.Since(start)
					if name != "apigw-v2-none" && name != "apigw-v1-none" {
						cold = 0 // the event does not tell
					}
					require.Less(t, waited, limit-cold)
					require.Greater(t, waited, limit-cold-5*time.Second)
				})
			})
		}
	}
}

func TestDeadlineOfAFront(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for _, c := range []struct {
		received int64
		want     time.Duration
	}{
		{now.UnixMilli(), 30 * time.Second},
		{now.Add(-4 * time.Second).UnixMilli(), 26 * time.Second},
		{now.Add(time.Second).UnixMilli(), 30 * time.Second}, // clocks differ
		{now.Add(-time.Hour).UnixMilli(), 30 * time.Second},  // hand-made
		{0, 30 * time.Second},
	} {
		f := gateway[events.APIGatewayV2HTTPRequest, events.APIGatewayV2HTTPResponse]{
			limit: 30 * time.Second, received: func(*events.APIGatewayV2HTTPRequest) int64 { return c.received },
		}
		require.Equal(t, c.want, f.deadline(nil, now).Sub(now))
	}
	require.Zero(t, gateway[int, int]{}.deadline(nil, now))
}

// A handler that changes its event does not change what a retry is compared with.
func TestHandlerMayChangeItsHTTPEvent(t *testing.T) {
	engine := newEngine(t, memory())
	n := 0
	v2 := HTTPAPI(engine, idemhttp.AnyRoute(charge), idemhttp.SingleTenant, nil, func(_ context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		n++
		e.Body = ""
		e.Headers["idempotency-key"] = "another-key-of-the-handler"
		e.RequestContext.HTTP.Method = "GET"
		return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
	})
	alb := ALB(engine, idemhttp.AnyRoute(transfer), idemhttp.SingleTenant, nil, func(_ context.Context, e events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
		n++
		clear(e.MultiValueHeaders)
		e.Path = "/other"
		return events.ALBTargetGroupResponse{StatusCode: 200}, nil
	})
	for range 2 {
		_, err := v2(t.Context(), sample(t, "apigw-v2-none"))
		require.NoError(t, err)
		_, err = alb(t.Context(), decoded[events.ALBTargetGroupRequest](t, "alb-multi"))
		require.NoError(t, err)
	}
	require.Equal(t, 2, n)
}

// fallible are functions of each kind that end in an error beside a response.
func fallible(engine *idem.Engine, n *int, status int, err error) map[string]any {
	routes, tenant := idemhttp.AnyRoute(charge), idemhttp.TenantFunc(idemhttp.SingleTenant)
	return map[string]any{
		"apigw-v2-none": HTTPAPI(engine, routes, tenant, nil, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			*n++
			return events.APIGatewayV2HTTPResponse{StatusCode: status}, err
		}),
		"apigw-v1-none": RESTAPI(engine, routes, tenant, nil, func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
			*n++
			return events.APIGatewayProxyResponse{StatusCode: status}, err
		}),
		"furl-none": FunctionURL(engine, routes, tenant, nil, func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
			*n++
			return events.LambdaFunctionURLResponse{StatusCode: status}, err
		}),
		"alb-single": ALB(engine, routes, tenant, nil, func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
			*n++
			return events.ALBTargetGroupResponse{StatusCode: status}, err
		}),
	}
}

// The handler's own error reaches the runtime as it is, and a recorded failure
// reports what the first one did.
func TestFailuresReplayInEveryGateway(t *testing.T) {
	for name, given := range failures() {
		for _, status := range []int{0, 500} {
			for _, sample := range []string{"apigw-v2-none", "apigw-v1-none", "furl-none", "alb-single"} {
				n := 0
				h := lambda.NewHandler(fallible(newEngine(t, memory()), &n, status, idem.Permanent(given))[sample])
				raw := changed(t, sample, func(map[string]any) {})
				_, live := h.Invoke(t.Context(), raw)
				_, again := h.Invoke(t.Context(), raw)
				require.Equal(t, 1, n)
				require.Equal(t, typeName(live), typeName(again), name)
				require.Equal(t, message(live), message(again), name)
			}
		}
	}
}

// An error that is not final is the handler's own value; a response beside it is
// not the gateway's.
func TestErrorsReachTheRuntimeUntouched(t *testing.T) {
	own := errors.New("own")
	for _, sample := range []string{"apigw-v2-none", "apigw-v1-none", "furl-none", "alb-single"} {
		for _, method := range []string{"POST", "GET"} {
			n := 0
			h := lambda.NewHandler(fallible(newEngine(t, memory()), &n, 201, own)[sample])
			out, err := h.Invoke(t.Context(), changed(t, sample, func(e map[string]any) {
				e["httpMethod"] = method
				if c, ok := e["requestContext"].(map[string]any)["http"].(map[string]any); ok {
					c["method"] = method
				}
			}))
			require.True(t, err == own)
			require.Empty(t, out)
			require.Equal(t, 1, n)
		}
	}
}

func TestSetUpMistakesPanicInEveryGateway(t *testing.T) {
	engine, n := newEngine(t, memory()), 0
	tenant := idemhttp.TenantFunc(idemhttp.SingleTenant)
	for _, f := range functions {
		requireConfigPanic(t, func() { f(nil, idemhttp.AnyRoute(charge), tenant, nil, &n) }, "engine is nil")
		requireConfigPanic(t, func() { f(engine, nil, tenant, nil, &n) }, "no routes")
		requireConfigPanic(t, func() { f(engine, idemhttp.AnyRoute(idem.Operation{}), tenant, nil, &n) }, "Name is empty")
		requireConfigPanic(t, func() { f(engine, idemhttp.AnyRoute(charge), nil, nil, &n) }, "SingleTenant")
	}
	requireConfigPanic(t, func() { HTTPAPI(engine, idemhttp.AnyRoute(charge), tenant, nil, nil) }, "idemlambda.HTTPAPI", "handler is nil")
	requireConfigPanic(t, func() { RESTAPI(engine, idemhttp.AnyRoute(charge), tenant, nil, nil) }, "idemlambda.RESTAPI", "handler is nil")
	requireConfigPanic(t, func() { FunctionURL(engine, idemhttp.AnyRoute(charge), tenant, nil, nil) }, "idemlambda.FunctionURL", "handler is nil")
	requireConfigPanic(t, func() { ALB(engine, idemhttp.AnyRoute(charge), tenant, nil, nil) }, "idemlambda.ALB", "handler is nil")
}
