package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/gateway"
)

// typed is a function as the runtime would call it.
func typed[E, R any](fn func(context.Context, E) (R, error)) gateway.Invoke {
	return func(ctx context.Context, raw []byte) ([]byte, error) {
		var event E
		if err := json.Unmarshal(raw, &event); err != nil {
			return nil, err
		}
		answer, err := fn(ctx, event)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	}
}

func TestRoundTrips(t *testing.T) {
	for name, multi := range map[string]bool{"function URL": false, "ALB": false, "ALB multi": true} {
		t.Run(name, func(t *testing.T) {
			engine, err := idem.New(memstore.New(), nil)
			require.NoError(t, err)
			routes := idemhttp.AnyRoute(idem.Operation{Name: "charge"})
			runs := 0
			head := map[string]string{"Content-Type": "application/json"}
			options := &gateway.Options{Flavour: gateway.ALB, MultiValueHeaders: multi}
			fn := typed(idemlambda.ALB(engine, routes, idemhttp.SingleTenant, nil, func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
				runs++
				return events.ALBTargetGroupResponse{StatusCode: 201, Headers: head, Body: `{"id":1}`}, nil
			}))
			if name == "function URL" {
				options = &gateway.Options{Flavour: gateway.FunctionURL}
				fn = typed(idemlambda.FunctionURL(engine, routes, idemhttp.SingleTenant, nil, func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
					runs++
					return events.LambdaFunctionURLResponse{StatusCode: 201, Headers: head, Body: `{"id":1}`}, nil
				}))
			}
			server := serve(t, map[string]gateway.Invoke{"$default": fn}, options)
			post := func(body string) reply {
				return send(t, "POST", server.URL+"/payments", body, func(r *http.Request) {
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
				})
			}
			first, again, reuse := post(`{"a":1}`), post(`{"a":1}`), post(`{"a":2}`)
			require.Equal(t, []int{201, 201, 422}, []int{first.StatusCode, again.StatusCode, reuse.StatusCode})
			require.Equal(t, `{"id":1}`, first.body)
			require.Equal(t, first.body, again.body)
			require.Empty(t, first.Header.Get(idemhttp.HeaderReplayed))
			require.Equal(t, "true", again.Header.Get(idemhttp.HeaderReplayed))
			require.Equal(t, 1, runs)
		})
	}
}

func TestFlavoursRefuse(t *testing.T) {
	const bad = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n</body>\r\n</html>\r\n"
	ok := `{"statusCode":200,"headers":{},"body":"`
	for name, c := range map[string]struct {
		o      gateway.Options
		answer string
		err    error
		sent   int
		status int
		body   string
	}{
		"ALB error":           {gateway.Options{Flavour: gateway.ALB}, "", errors.New("x"), 0, 502, bad},
		"ALB no status":       {gateway.Options{Flavour: gateway.ALB}, `{"headers":{}}`, nil, 0, 502, bad},
		"ALB no headers":      {gateway.Options{Flavour: gateway.ALB}, `{"statusCode":200,"headers":null}`, nil, 0, 502, bad},
		"ALB wrong map":       {gateway.Options{Flavour: gateway.ALB, MultiValueHeaders: true}, ok + `"}`, nil, 0, 502, bad},
		"ALB answer too long": {gateway.Options{Flavour: gateway.ALB}, ok + strings.Repeat("x", 1<<20) + `"}`, nil, 0, 502, bad},
		"ALB 1 MB":            {gateway.Options{Flavour: gateway.ALB}, ok + `y"}`, nil, 1 << 20, 200, "y"},
		"ALB over 1 MB":       {gateway.Options{Flavour: gateway.ALB}, ok + `"}`, nil, 1<<20 + 1, 413, strings.ReplaceAll(bad, "502 Bad Gateway", "413 Request Entity Too Large")},
		"URL error":           {gateway.Options{Flavour: gateway.FunctionURL}, "", errors.New("x"), 0, 502, "Internal Server Error"},
		"URL over 6 MB":       {gateway.Options{Flavour: gateway.FunctionURL}, `{}`, nil, 6<<20 + 1, 413, "Request Entity Too Large"},
	} {
		fn := &recorder{answer: c.answer, err: c.err}
		server := serve(t, map[string]gateway.Invoke{"$default": fn.invoke}, &c.o)
		got := send(t, "POST", server.URL+"/", strings.Repeat("a", c.sent), nil)
		require.Equal(t, c.status, got.StatusCode, name)
		require.Equal(t, c.body, got.body, name)
	}
	goOn := make(chan struct{})
	defer close(goOn)
	hang := func(context.Context, []byte) ([]byte, error) { <-goOn; return nil, nil }
	server := serve(t, map[string]gateway.Invoke{"$default": hang}, &gateway.Options{Flavour: gateway.ALB, Timeout: time.Millisecond})
	got := send(t, "GET", server.URL+"/", "", nil)
	require.Equal(t, 504, got.StatusCode)
	require.Contains(t, got.body, "504 Gateway Time-out")

	for _, o := range []gateway.Options{{Flavour: 9}, {MultiValueHeaders: true}, {Flavour: gateway.FunctionURL}, {Flavour: gateway.ALB, Timeout: time.Hour}} {
		_, err := gateway.New(map[string]gateway.Invoke{"GET /": hang}, &o)
		require.ErrorContains(t, err, "gateway: ")
	}
}

func TestALBEvent(t *testing.T) {
	for _, multi := range []bool{false, true} {
		fn := &recorder{answer: `{"statusCode":200,"headers":{"X-A":"1"},"multiValueHeaders":{"X-A":["1","2"]}}`}
		server := serve(t, map[string]gateway.Invoke{"$default": fn.invoke}, &gateway.Options{Flavour: gateway.ALB, MultiValueHeaders: multi})
		got := send(t, "POST", server.URL+"/a%20b?x=%2C&x=2", "{}", func(r *http.Request) {
			r.Header["X-Tag"] = []string{"web", "eu"}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Content-Encoding", "br")
		})
		var e events.ALBTargetGroupRequest
		require.NoError(t, json.Unmarshal(fn.events[0], &e))
		require.Equal(t, []any{"/a%20b", "POST", "e30=", true}, []any{e.Path, e.HTTPMethod, e.Body, e.IsBase64Encoded})
		if multi {
			require.Nil(t, e.Headers)
			require.Equal(t, []string{"web", "eu"}, e.MultiValueHeaders["x-tag"])
			require.Equal(t, []string{"%2C", "2"}, e.MultiValueQueryStringParameters["x"])
			require.Equal(t, []string{"1", "2"}, got.Header.Values("X-A"))
		} else {
			require.Nil(t, e.MultiValueHeaders)
			require.Equal(t, "eu", e.Headers["x-tag"])
			require.Equal(t, "2", e.QueryStringParameters["x"])
			require.Equal(t, []string{"1"}, got.Header.Values("X-A"))
		}
	}
}
