package main

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/cloud"
)

// A line about a request has the code of a refusal.
func TestRequestLine(t *testing.T) {
	for want, answer := range map[string]struct{ kind, body string }{
		"422 idempotency_key_reused": {"application/problem+json", `{"status":422,"code":"idempotency_key_reused"}`},
		"422 tenant_missing":         {"application/json", `{"error":{"type":"api_error","code":"tenant_missing"}}`},
		"422":                        {"application/json", `{"code":"of the user's"}`},
	} {
		payload, err := json.Marshal(map[string]any{"statusCode": 422, "body": answer.body})
		require.NoError(t, err)
		inv := cloud.Invocation{Source: "POST /orders", Function: "shop", Result: runtime.Result{Payload: payload},
			Status: 422, Header: http.Header{"Content-Type": {answer.kind}}, Took: time.Millisecond}
		require.Equal(t, "POST /orders  "+want+"  0 calls  1ms", requestLine(t.Context(), nil, inv))
	}
}

// A line about an Invoke of Lambda says whether the function has answered.
func TestLineOfAnInvoke(t *testing.T) {
	for want, result := range map[string]runtime.Result{
		"done":               {Payload: []byte(`"any JSON"`)},
		"returned: E: fails": {Error: &runtime.FunctionError{Type: "E", Message: "fails"}},
	} {
		inv := cloud.Invocation{Source: "Invoke of shop", Function: "shop", Result: result, Calls: 1}
		require.Equal(t, "Invoke of shop  "+want+"  1 call  0s", requestLine(t.Context(), nil, inv))
	}
}

// A store that does not answer in time is asked again.
func TestStateOfASlowStore(t *testing.T) {
	store := idemtest.NewFaults(memstore.New())
	engine, err := idem.New(store, nil)
	require.NoError(t, err)
	key := idem.Operation{Name: "order", Repeat: idem.Repeatable}.Key(idem.SingleTenant, "first")
	_, err = idem.Do(t.Context(), engine, key, 1, func(context.Context, int) (int, error) { return 1, nil })
	require.NoError(t, err)
	for range 4 {
		store.Next(idemtest.Get, idemtest.LoseReply)
	}
	require.Equal(t, " completed", stateNow(t.Context(), []*idemtest.Faults{store}, key.ID()))
}
