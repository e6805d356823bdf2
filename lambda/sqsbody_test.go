package idemlambda

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// receivedAs sends a body to a handler of the type.
func receivedAs[In any](t *testing.T, body string) (got In, out SQSDelivery) {
	t.Helper()
	var seen told
	h := SQS(newEngine(t, memory()), fulfil, byAttribute, &SQSOptions{OnOutcome: seen.hook, Logger: quiet}, func(_ context.Context, in In) error {
		got = in
		return nil
	})
	_, err := h(t.Context(), batchOf(messageOf("m1", "k1", body)))
	require.NoError(t, err)
	return got, seen.outcomes["m1"]
}

func TestSQSBodies(t *testing.T) {
	const body = `{ "id": "o1", "do": "" }`
	o, out := receivedAs[order](t, body)
	require.Equal(t, order{ID: "o1"}, o)
	require.Equal(t, ReasonExecuted, out.Reason)

	p, _ := receivedAs[*order](t, body)
	require.Equal(t, &order{ID: "o1"}, p)
	raw, _ := receivedAs[json.RawMessage](t, body)
	require.Equal(t, body, string(raw))
	text, _ := receivedAs[string](t, body)
	require.Equal(t, body, text)
	bytes, _ := receivedAs[[]byte](t, "\xff not JSON")
	require.Equal(t, "\xff not JSON", string(bytes))
	text, out = receivedAs[string](t, "")
	require.Empty(t, text)
	require.Equal(t, ReasonExecuted, out.Reason)

	for _, unreadable := range []string{"", "x", `{"id":"o1"`, `{"id":1}`, `{"id":"a","id":"b"}`, "{\"id\":\"\xff\"}"} {
		_, out := receivedAs[order](t, unreadable)
		require.Equal(t, ReasonBodyUnreadable, out.Reason, unreadable)
		require.Error(t, out.Err)
		require.Empty(t, out.RecordID)
	}
	_, out = receivedAs[json.RawMessage](t, "x")
	require.Equal(t, ReasonBodyUnreadable, out.Reason)
	_, out = receivedAs[panics](t, "1")
	require.Equal(t, ReasonPanicked, out.Reason)
	require.Equal(t, "decoder", out.Err.(*PanicError).Value)
}

type panics struct{}

func (*panics) UnmarshalJSON([]byte) error { panic("decoder") }

// counted counts how often it is decoded.
type counted struct{}

var decodings int

func (*counted) UnmarshalJSON([]byte) error { decodings++; return nil }

func TestSQSDecodesABodyOnce(t *testing.T) {
	decodings = 0
	_, _ = receivedAs[counted](t, "{}")
	require.Equal(t, 1, decodings)
}

// White space and the order of members make no other message; with a type that
// takes the bytes they do.
func TestSQSFingerprints(t *testing.T) {
	again := func(h SQSHandler, seen *told) Reason {
		for _, body := range []string{`{"id":"o1","do":""}`, `{ "do": "", "id": "o1" }`} {
			_, err := h(t.Context(), batchOf(messageOf("m1", "k1", body)))
			require.NoError(t, err)
		}
		return seen.outcomes["m1"].Reason
	}
	var seen told
	o := &SQSOptions{OnOutcome: seen.hook, Logger: quiet}
	require.Equal(t, ReasonReplayed, again(SQS(newEngine(t, memory()), fulfil, byAttribute, o, work), &seen))
	require.Equal(t, ReasonKeyReused, again(SQS(newEngine(t, memory()), fulfil, byAttribute, o, func(context.Context, string) error { return nil }), &seen))
}

// The message is in reach of handler, key function and hooks, and nowhere else.
func TestSQSMessageOf(t *testing.T) {
	asked := 0
	see := func(ctx context.Context) {
		m, ok := SQSMessageOf(ctx)
		require.True(t, ok)
		require.Equal(t, "m1", m.MessageId)
		require.Equal(t, "k1", *m.MessageAttributes[SQSKeyAttribute].StringValue)
		asked++
	}
	h := SQS(newEngine(t, memory()), fulfil,
		func(ctx context.Context, m *events.SQSMessage) (string, string, error) {
			see(ctx)
			return byAttribute(ctx, m)
		},
		&SQSOptions{
			OnOutcome: func(ctx context.Context, _ SQSDelivery) { see(ctx) },
			OnFailed:  func(ctx context.Context, _ SQSDelivery) error { see(ctx); return nil },
			Logger:    quiet,
		}, func(ctx context.Context, o order) error { see(ctx); return work(ctx, o) })
	_, err := h(t.Context(), batchOf(messageOf("m1", "k1", `{"do":"permanent"}`)))
	require.NoError(t, err)
	require.Equal(t, 4, asked)
	_, ok := SQSMessageOf(t.Context())
	require.False(t, ok)
}

// Text is not decoded, and the key's pointer sees what a JSON reader further on sees.
func TestSQSTextWithTwoKeysGoesBack(t *testing.T) {
	for _, body := range []string{`{"id":"first","id":"last"}`, `{"id":"first","ID":"last"}`} {
		var seen told
		o := &SQSOptions{OnOutcome: seen.hook, Logger: quiet}
		text := SQS(newEngine(t, memory()), fulfil, SQSPointer(idem.SingleTenant, "/id"), o, func(context.Context, string) error {
			t.Error("it ran")
			return nil
		})
		raw := SQS(newEngine(t, memory()), fulfil, SQSPointer(idem.SingleTenant, "/id"), o, func(context.Context, []byte) error {
			t.Error("it ran")
			return nil
		})
		for _, h := range []SQSHandler{text, raw} {
			res, err := h(t.Context(), batchOf(messageOf("m", "", body)))
			require.NoError(t, err)
			require.Equal(t, []string{"m"}, named(res))
			require.Equal(t, ReasonKeyInvalid, seen.outcomes["m"].Reason)
		}
	}
}
