package gateway_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

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
