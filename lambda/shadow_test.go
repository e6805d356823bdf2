package idemlambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/stretchr/testify/require"
)

func inShadow(op idem.Operation) idem.Operation {
	op.Shadow = true
	return op
}

// shadowEngine is an engine that returns the kinds of its notices, a word a call.
func shadowEngine(t *testing.T, store idem.Store) (*idem.Engine, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	e, err := idem.New(store, &idem.Options{Observer: func(_ context.Context, n notice.Notice) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, string(n.Kind))
	}})
	require.NoError(t, err)
	return e, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

type shadowIn struct {
	ID   string `json:"id"`
	Text string
}

type shadowOut struct {
	HTML   string
	Raw    json.RawMessage `json:",omitempty"`
	Number any
}

// MarshalJSON has a pointer receiver: aws-lambda-go does not find it in a result.
func (*shadowOut) MarshalJSON() ([]byte, error) { return []byte(`"by address"`), nil }

// A wrapped handler in shadow answers as aws-lambda-go does without the wrapper, whatever the
// event, the handler, the key function and the store do.
func TestWrapInShadowAnswersAsWithout(t *testing.T) {
	broken := errors.New("broken")
	handlers := map[string]func(context.Context, shadowIn) (shadowOut, error){
		"a result": func(_ context.Context, in shadowIn) (shadowOut, error) {
			return shadowOut{HTML: "<b>" + in.Text + "&", Number: 1e21}, nil
		},
		"an error with a result": func(context.Context, shadowIn) (shadowOut, error) {
			return shadowOut{HTML: "x"}, broken
		},
		"no encoding": func(context.Context, shadowIn) (shadowOut, error) { return shadowOut{Number: func() {}}, nil },
		"broken JSON": func(context.Context, shadowIn) (shadowOut, error) {
			return shadowOut{Raw: json.RawMessage("{")}, nil
		},
		"a panic": func(context.Context, shadowIn) (shadowOut, error) { panic(broken) },
		"what its context says": func(ctx context.Context, _ shadowIn) (shadowOut, error) {
			_, ok := ctx.Deadline()
			return shadowOut{Number: fmt.Sprint(ok, ctx.Err())}, nil
		},
	}
	payloads := []string{`{"id":"1","Text":"a"}`, `{"Text":"no id"}`, `{"id":"1","id":"2"}`, `{"id":7}`, `not JSON`,
		``, `null`, "{\"id\":\"\xff\"}",
		`{"DurableExecutionArn":"arn:aws:lambda:eu-west-1:1:function:f","CheckpointToken":"t","InitialExecutionState":{}}`}
	keys := map[string]KeyFunc{
		"a pointer": Pointer(idem.SingleTenant, "/id"),
		"a panic":   func(context.Context, json.RawMessage) (string, string, error) { panic("no id") },
		"an error":  func(context.Context, json.RawMessage) (string, string, error) { return "", "", broken },
	}
	stores := map[string]idem.Store{"up": memory(), "down": unreachable(), "damaged": damaged()}
	for where, store := range stores {
		for what, fn := range handlers {
			for which, key := range keys {
				t.Run(where+"/"+what+"/"+which, func(t *testing.T) {
					e, noticed := shadowEngine(t, store)
					h := Wrap(e, inShadow(charge), key, fn)
					plain := lambda.NewHandler(fn)
					for i, payload := range payloads {
						want, wantThrown, wantErr := invoked(plain, payload)
						got, gotThrown, gotErr := invoked(h, payload)
						require.Equal(t, string(want), string(got), payload)
						require.Equal(t, wantErr, gotErr, payload)
						require.Equal(t, wantThrown, gotThrown, payload)
						require.Len(t, noticed(), i+1, "one notice an event: %s", payload)
					}
				})
			}
		}
	}
}

// A result that is a reader is read where aws-lambda-go does so. That the live mode refuses its type is noticed.
func TestWrapInShadowReadsAReader(t *testing.T) {
	e, noticed := shadowEngine(t, memory())
	type both struct {
		io.Reader
		Text string
	}
	type neither struct {
		io.Reader
		F func()
	}
	for name, reader := range map[string]func() io.Reader{
		"of an empty object": func() io.Reader { return strings.NewReader("<b>hello</b>") },
		"of a full object":   func() io.Reader { return both{strings.NewReader("x"), "y"} },
		"without JSON":       func() io.Reader { return neither{Reader: strings.NewReader("x")} },
		"none":               func() io.Reader { return nil },
	} {
		fn := func(context.Context, shadowIn) (io.Reader, error) { return reader(), nil }
		want, err := lambda.NewHandler(fn).Invoke(t.Context(), []byte(`{"id":"1"}`))
		require.NoError(t, err)
		got, err := Wrap(e, inShadow(charge), Pointer(idem.SingleTenant, "/id"), fn)(t.Context(), []byte(`{"id":"1"}`))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), name)
	}
	require.Equal(t, slices.Repeat([]string{"shadow_refused"}, 4), noticed())
}

func invoked(h lambda.Handler, payload string) (body []byte, thrown any, err error) {
	defer func() { thrown = recover() }()
	body, err = h.Invoke(context.Background(), []byte(payload))
	return body, nil, err
}

// A gateway's handler in shadow gives its own response and error, the fields that the library
// does not know of included, also for requests that would be refused.
func TestGatewaysInShadowGiveTheHandlersOwn(t *testing.T) {
	broken := errors.New("broken")
	given := events.APIGatewayV2HTTPResponse{
		StatusCode: 201, Body: "\xff raw", Headers: map[string]string{}, MultiValueHeaders: map[string][]string{"X": nil},
		Cookies: []string{"a=b"},
	}
	e, noticed := shadowEngine(t, memory())
	for i, c := range []struct {
		res  events.APIGatewayV2HTTPResponse
		err  error
		with func(*events.APIGatewayV2HTTPRequest)
		want string
	}{
		{res: given, want: "shadow_executed"},
		{res: given, err: broken, want: "shadow_duplicate"},
		{want: "shadow_duplicate"},
		{res: given, with: func(r *events.APIGatewayV2HTTPRequest) { r.Body = "{" }, want: "shadow_refused"},
		{res: given, with: func(r *events.APIGatewayV2HTTPRequest) { r.Headers = nil }, want: "shadow_refused"},
		{res: given, with: func(r *events.APIGatewayV2HTTPRequest) { r.RouteKey = "POST /refunds" }, want: "shadow_refused"},
	} {
		h := HTTPAPI(e, idemhttp.Routes{"POST /payments": inShadow(charge)}, idemhttp.SingleTenant, nil,
			func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				return c.res, c.err
			})
		r := events.APIGatewayV2HTTPRequest{RouteKey: "POST /payments", RawPath: "/payments", Body: `{"a":1}`,
			Headers: map[string]string{"idempotency-key": "8e03978e-40d5-43e8-bc93-6894a57f9324",
				"content-type": "application/json"}}
		r.RequestContext.HTTP.Method = "POST"
		if c.with != nil {
			if c.with(&r); r.RouteKey == "POST /refunds" {
				r.RawPath = "/refunds"
			}
		}
		res, err := h(t.Context(), r)
		require.Equal(t, c.res, res)
		require.True(t, c.err == err)
		require.Equal(t, c.want, noticed()[i])
		require.Len(t, noticed(), i+1)
	}
}

// Every message in shadow is handed to its handler and acknowledged by its result alone.
func TestMessagesInShadowAreAllHandled(t *testing.T) {
	stores := map[string]idem.Store{"up": memory(), "down": unreachable()}
	for where, store := range stores {
		t.Run(where, func(t *testing.T) {
			e, noticed := shadowEngine(t, store)
			var mu sync.Mutex
			ran := map[string]int{}
			h := SQS(e, inShadow(charge), SQSPointer(idem.SingleTenant, "/id"), nil,
				func(ctx context.Context, in shadowIn) error {
					m, _ := SQSMessageOf(ctx)
					mu.Lock()
					ran[m.MessageId]++
					mu.Unlock()
					switch in.Text {
					case "fails":
						return errors.New("broken")
					case "fails for good":
						return idem.Permanent(errors.New("broken"))
					case "panics":
						panic("broken")
					}
					return nil
				})
			event := events.SQSEvent{Records: []events.SQSMessage{
				{MessageId: "first", Body: `{"id":"1"}`},
				{MessageId: "twin", Body: `{"id":"1"}`},
				{MessageId: "reused", Body: `{"id":"1","Text":"x"}`},
				{MessageId: "no key", Body: `{"Text":"x"}`},
				{MessageId: "two meanings", Body: `{"id":"2","x":1,"x":2}`},
				{MessageId: "fails", Body: `{"id":"3","Text":"fails"}`},
				{MessageId: "fails for good", Body: `{"id":"4","Text":"fails for good"}`},
				{MessageId: "panics", Body: `{"id":"5","Text":"panics"}`},
				{MessageId: "unread", Body: `{`},
			}}
			for n := range 2 {
				res, err := h(t.Context(), event)
				require.NoError(t, err)
				var again []string
				for _, f := range res.BatchItemFailures {
					again = append(again, f.ItemIdentifier)
				}
				require.Equal(t, []string{"fails", "fails for good", "panics", "unread"}, again)
				for _, m := range event.Records[:8] {
					require.Equal(t, n+1, ran[m.MessageId], m.MessageId)
				}
				require.Len(t, noticed(), 8*(n+1), "one notice a message that can be read")
			}
			require.Zero(t, ran["unread"])
		})
	}
}

// What the live mode would refuse runs in shadow, and its retry with the token of its key.
func TestTheTokenInShadowIsThatOfTheKey(t *testing.T) {
	twice := `{"id":"1","Text":"a","Text":"b"}`
	var tokens []string
	e, noticed := shadowEngine(t, memory())
	h := Wrap(e, inShadow(charge), KeyFrom(func(in shadowIn) (string, string) { return idem.SingleTenant, "k" }),
		func(ctx context.Context, _ shadowIn) (shadowOut, error) {
			tokens = append(tokens, idem.Token(ctx))
			return shadowOut{}, nil
		})
	q := SQS(e, inShadow(fulfil), byAttribute, nil, func(ctx context.Context, _ order) error {
		tokens = append(tokens, idem.Token(ctx))
		return nil
	})
	for range 2 {
		_, _ = invoke(t, h, twice)
		_, _ = q(t.Context(), batchOf(messageOf("m1", "k1", `{"id":"1","id":"2"}`)))
	}
	require.Len(t, tokens, 4)
	require.Equal(t, tokens[:2], tokens[2:])
	require.NotEqual(t, tokens[0], tokens[1])
	for _, n := range noticed() {
		require.Equal(t, string(notice.ShadowRefused), n)
	}
}

// On Lambda Managed Instances a time-out ends the answer, not the handler. One that runs on keeps its claim: its
// duplicate does not run in parallel, and its late outcome counts.
func TestManagedInstancesKeepTheClaim(t *testing.T) {
	const whole = 10 * time.Second
	environments := map[string]map[string]string{
		"by its type": {"AWS_LAMBDA_INITIALIZATION_TYPE": "lambda-managed-instances",
			"AWS_LAMBDA_MAX_CONCURRENCY": "1"},
		"by its concurrency": {"AWS_LAMBDA_MAX_CONCURRENCY": "8"},
	}
	for name, env := range environments {
		for _, repeat := range []idem.Repeat{idem.Repeatable, idem.NotRepeatable} {
			op := idem.Operation{Name: "settle", Repeat: repeat}
			for entry, open := range map[string]func(*idem.Engine, func(context.Context) error) func(context.Context) error{
				"Wrap": func(e *idem.Engine, f func(context.Context) error) func(context.Context) error {
					h := Wrap(e, op, Pointer(idem.SingleTenant, "/id"),
						func(ctx context.Context, _ json.RawMessage) (int, error) { return 1, f(ctx) })
					return func(ctx context.Context) error {
						_, err := h(ctx, []byte(`{"id":"1"}`))
						return err
					}
				},
				"SNS": func(e *idem.Engine, f func(context.Context) error) func(context.Context) error {
					h := SNS(e, op, nil, nil, func(ctx context.Context, _ string) error { return f(ctx) })
					return func(ctx context.Context) error {
						return h(ctx,
							events.SNSEvent{Records: []events.SNSEventRecord{{SNS: events.SNSEntity{TopicArn: "t", MessageID: "1"}}}})
					}
				},
			} {
				t.Run(name+"/"+repeat.String()+"/"+entry, func(t *testing.T) {
					t.Setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1")
					for k, v := range env {
						t.Setenv(k, v)
					}
					synctest.Test(t, func(t *testing.T) {
						store := memory()
						late := realTime(t, store)
						runs := 0
						h := func(e *idem.Engine) func(context.Context) error {
							return open(e, func(ctx context.Context) error {
								runs++
								begun := time.Now()
								end, ok := ctx.Deadline()
								require.True(t, ok)
								require.LessOrEqual(t, end.Sub(begun), whole, "the deadline bounds the handler all the same")
								time.Sleep(3 * whole) // does not look at its context
								require.Error(t, ctx.Err())
								return nil
							})
						}
						over := make(chan error)
						go func() {
							ctx, cancel := context.WithTimeout(t.Context(), whole)
							defer cancel()
							over <- h(late)(ctx)
						}()
						time.Sleep(whole + 2*idem.DefaultMargin)
						other := realTime(t, store)
						ctx, cancel := context.WithTimeout(t.Context(), whole)
						defer cancel()
						require.ErrorIs(t, h(other)(ctx), idem.ErrInFlight)
						require.Equal(t, 1, runs)
						require.NoError(t, <-over)
						again, cancel := context.WithTimeout(t.Context(), whole)
						defer cancel()
						require.NoError(t, h(other)(again), "the late outcome is recorded")
						require.Equal(t, 1, runs)
					})
				})
			}
		}
	}
}

// Elsewhere the lease ends with the process, and the handler's context before; outside of Lambda too.
func TestOnDemandLeaseEndsAtTheKill(t *testing.T) {
	for _, api := range []string{"127.0.0.1:1", ""} {
		t.Setenv("AWS_LAMBDA_RUNTIME_API", api)
		t.Setenv("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand")
		t.Setenv("AWS_LAMBDA_MAX_CONCURRENCY", "")
		synctest.Test(t, func(t *testing.T) {
			h := Wrap(realTime(t, memory()), transfer, Pointer(idem.SingleTenant, "/id"),
				func(ctx context.Context, _ json.RawMessage) (time.Time, error) {
					info, ok := idem.InfoOf(ctx)
					require.True(t, ok)
					end, ok := ctx.Deadline()
					require.True(t, ok)
					require.WithinDuration(t, info.LeaseUntil.Add(-idem.DefaultGuard), end, 100*time.Millisecond)
					return info.LeaseUntil, nil
				})
			kill := time.Now().Add(10 * time.Second)
			ctx, cancel := context.WithDeadline(t.Context(), kill)
			defer cancel()
			got, err := h(ctx, []byte(`{"id":"1"}`))
			require.NoError(t, err)
			var until time.Time
			require.NoError(t, json.Unmarshal(got, &until))
			require.WithinDuration(t, kill, until, time.Millisecond)

			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err = h(short, []byte(`{"id":"2"}`))
			require.ErrorIs(t, err, idem.ErrOutOfTime)
		})
	}
}
