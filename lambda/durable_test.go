package idemlambda

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// What Lambda sends a durable function, on the first invocation of an execution.
const durableEvent = `{
	"DurableExecutionArn": "arn:aws:lambda:eu-central-1:111122223333:function:orders:1/durable-execution/order-1042/4f1c",
	"CheckpointToken": "token-1",
	"InitialExecutionState": {"Operations": [{"Id": "0", "Type": "EXECUTION", "Status": "STARTED",
		"ExecutionDetails": {"InputPayload": "{\"id\":\"order-1042\"}"}}], "NextMarker": ""}
}`

// Its answer is PENDING until the execution ends: recorded, it would never end.
func TestDurableExecutionsAreRefused(t *testing.T) {
	handler := func(context.Context, json.RawMessage) (map[string]string, error) {
		t.Error("it ran")
		return map[string]string{"Status": "PENDING"}, nil
	}
	store := memory()
	e := newEngine(t, store)
	byARN := Pointer(idem.SingleTenant, "/DurableExecutionArn")
	for name, h := range map[string]Handler{
		"Wrap": Wrap(e, charge, byARN, handler), "Async": Async(e, charge, nil, handler),
		"StepFunctions": StepFunctions(e, charge, nil, handler),
	} {
		_, err := h(t.Context(), []byte(durableEvent))
		require.ErrorIs(t, err, ErrDurableExecution, name)
		require.ErrorContains(t, err, "idem.Do inside the execution's steps", name)
		require.Equal(t, "DurableExecutionError", typeName(err), name)
	}
	require.Empty(t, store.Records())
}

// Events that only mention one are somebody's own.
func TestEventsThatMentionADurableExecution(t *testing.T) {
	for _, event := range []string{
		`{"durableExecutionArn":"a","checkpointToken":"t","initialExecutionState":{}}`,
		`{"DurableExecutionArn":"a","CheckpointToken":"t"}`,
		`{"text":"DurableExecutionArn CheckpointToken InitialExecutionState"}`,
		`{"execution":` + durableEvent + `}`,
		`"DurableExecutionArn CheckpointToken InitialExecutionState"`,
	} {
		h := Wrap(newEngine(t, memory()), charge, func(context.Context, json.RawMessage) (string, string, error) { return idem.SingleTenant, "k", nil },
			func(context.Context, json.RawMessage) (string, error) { return "ran", nil })
		out, err := h(t.Context(), []byte(event))
		require.NoError(t, err, event)
		require.Equal(t, `"ran"`, string(out), event)
	}
}
