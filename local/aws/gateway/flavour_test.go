package gateway_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

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
