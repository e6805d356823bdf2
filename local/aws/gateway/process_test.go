package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/aws/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// From a real request to a real process and back.
func TestRequestsReachAProcess(t *testing.T) {
	pool, err := runtime.Start(context.Background(), runtime.Function{Path: testmain.Program(t, "./testdata/payments")}, nil)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	server := serve(t, map[string]gateway.Invoke{"POST /payments/{id}": pool.Call}, nil)

	got := send(t, "POST", server.URL+"/payments/p-1", `{"amount":4999}`, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "key-0123456789abcdef")
	})
	require.Equal(t, http.StatusCreated, got.StatusCode)
	require.Equal(t, "key-0123456789abcdef", got.Header.Get("X-Key"))
	var event events.APIGatewayV2HTTPRequest
	require.NoError(t, json.Unmarshal([]byte(got.body), &event))
	require.Equal(t, "p-1", event.PathParameters["id"])
	require.Equal(t, `{"amount":4999}`, event.Body)

	require.Equal(t, http.StatusInternalServerError, send(t, "POST", server.URL+"/payments/crash", "", nil).StatusCode)
	require.Equal(t, http.StatusCreated, send(t, "POST", server.URL+"/payments/p-2", "", nil).StatusCode, "the next process answers")
}
