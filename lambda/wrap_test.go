package idemlambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

type payment struct {
	Merchant string         `json:"merchant"`
	ID       string         `json:"paymentId"`
	Amount   int            `json:"amount"`
	Tags     []string       `json:"tags,omitempty"`
	Extra    map[string]any `json:"extra,omitempty"`
}

type receipt struct {
	ID   string `json:"id"`
	Note string `json:"note"`
}

var byPaymentID = Pointer(idem.SingleTenant, "/paymentId")

const event = `{"merchant":"m1","paymentId":"pay_1","amount":4999,"tags":["a","b"],"extra":{"k":"v"}}`

// invoke goes through aws-lambda-go, as the runtime does.
func invoke(t *testing.T, h Handler, payload string) (string, error) {
	t.Helper()
	out, err := lambda.NewHandler(h).Invoke(t.Context(), []byte(payload))
	return string(out), err
}

// replies is invoke of an event that has an answer.
func replies(t *testing.T, h Handler, payload string) string {
	t.Helper()
	out, err := invoke(t, h, payload)
	require.NoError(t, err)
	return out
}

func TestWrapRunsOnceAndReplaysTheSameBytes(t *testing.T) {
	n := 0
	fn := func(_ context.Context, p payment) (receipt, error) {
		n++
		return receipt{ID: fmt.Sprintf("ch_%d", n), Note: "<a> & \u2028 ☃"}, nil
	}
	h := Wrap(newEngine(t, memory()), charge, byPaymentID, fn)
	first := replies(t, h, event)

	n = 0
	plain, err := lambda.NewHandler(fn).Invoke(t.Context(), []byte(event))
	require.NoError(t, err)
	require.Equal(t, string(plain), first, "the same bytes as without Wrap")

	n = 1
	for _, again := range []string{
		event,
		`{ "amount": 4999, "paymentId": "pay_\u0031", "merchant": "m1", "extra": {"k":"v"}, "tags": ["a","b"] }`,
	} {
		require.Equal(t, first, replies(t, h, again))
	}
	require.Equal(t, 1, n)

	_, err = invoke(t, h, `{"merchant":"m1","paymentId":"pay_1","amount":5000}`)
	require.ErrorIs(t, err, idem.ErrKeyReused)
	require.Equal(t, 1, n)
}

// The event's raw JSON counts, not the Go type: a new field changes nothing, and
// a field that the type does not know makes another input.
func TestWrapFingerprintsTheRawEvent(t *testing.T) {
	engine := newEngine(t, memory())
	type grown struct {
		payment
		Currency string `json:"currency"`
	}
	n := 0
	before := Wrap(engine, charge, byPaymentID,
		func(context.Context, payment) (receipt, error) { n++; return receipt{}, nil })
	after := Wrap(engine, charge, byPaymentID,
		func(context.Context, grown) (receipt, error) { n++; return receipt{}, nil })
	replies(t, before, event)
	replies(t, after, event)
	require.Equal(t, 1, n)
	_, err := invoke(t, before, event[:len(event)-1]+`,"unknown":1}`)
	require.ErrorIs(t, err, idem.ErrKeyReused)
}

// A handler that changes its event neither completes another key nor changes what a retry is compared with.
func TestHandlerMayChangeItsEvent(t *testing.T) {
	n := 0
	for name, h := range map[string]Handler{
		"typed": Wrap(newEngine(t, memory()), charge, byPaymentID, func(_ context.Context, p payment) (receipt, error) {
			n++
			p.ID, p.Amount, p.Tags[0], p.Extra["k"] = "pay_2", 1, "z", "changed"
			return receipt{ID: p.ID}, nil
		}),
		"raw": Wrap(newEngine(t, memory()), charge, byPaymentID,
			func(_ context.Context, raw json.RawMessage) (json.RawMessage, error) {
				n++
				for i := range raw {
					raw[i] = ' '
				}
				return json.RawMessage(`{"id":"pay_2","note":""}`), nil
			}),
	} {
		n = 0
		payload := []byte(event)
		for range 2 {
			out, err := h.Invoke(t.Context(), payload)
			require.NoError(t, err, name)
			require.JSONEq(t, `{"id":"pay_2","note":""}`, string(out), name)
		}
		require.Equal(t, event, string(payload), name)
		require.Equal(t, 1, n, name)
	}
}

// One tenant's key is another record for the other, of an event and of a message: neither gets what
// the other's call returned.
func TestTwoTenantsNeverShareARecord(t *testing.T) {
	runs := 0
	e, ran := newEngine(t, memory()), func() { runs++ }
	h := Wrap(e, charge, Pointer("/merchant", "/paymentId"),
		func(_ context.Context, p payment) (string, error) { ran(); return p.Merchant, nil })
	q := SQS(e, fulfil, SQSPointer("/merchant", "/paymentId"), nil,
		func(context.Context, payment) error { ran(); return nil })
	for range 2 {
		for _, m := range []string{"m1", "m2"} {
			event := `{"merchant":"` + m + `","paymentId":"pay_1"}`
			require.Equal(t, `"`+m+`"`, replies(t, h, event))
			require.Empty(t, deliver(t, q, messageOf(m, "k", event)))
		}
	}
	require.Equal(t, 4, runs)
}

func TestBadEventsClaimNothing(t *testing.T) {
	store := memory()
	h := Wrap(newEngine(t, store), charge, byPaymentID, func(context.Context, payment) (receipt, error) {
		t.Fatal("the handler ran")
		return receipt{}, nil
	})
	for _, c := range []struct {
		payload string
		is      error
		kind    string
	}{
		{``, fingerprint.ErrNotCanonical, "NotCanonicalError"},
		{`{"paymentId":"pay_1"} x`, fingerprint.ErrNotCanonical, "NotCanonicalError"},
		{`{"paymentId":"pay_1","paymentId":"pay_2"}`, fingerprint.ErrNotCanonical, "NotCanonicalError"},
		{`{"paymentId":"pay_1","amount":1e400}`, fingerprint.ErrNotCanonical, "NotCanonicalError"},
		{`{"paymentId":"pay_1","amount":"text"}`, nil, "UnmarshalTypeError"},
		{`{"paymentId":null}`, idem.ErrKeyInvalid, "KeyInvalidError"},
		{`{}`, idem.ErrKeyInvalid, "KeyInvalidError"},
		{`null`, idem.ErrKeyInvalid, "KeyInvalidError"},
		{`{"paymentId":""}`, idem.ErrKeyInvalid, "KeyInvalidError"},
	} {
		_, err := invoke(t, h, c.payload)
		require.Error(t, err, c.payload)
		require.Equal(t, c.kind, typeName(err), c.payload)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, c.payload)
		}
	}
	rec, err := store.Get(t.Context(), charge.Key(idem.SingleTenant, "pay_1").ID())
	require.NoError(t, err)
	require.Nil(t, rec)
}

// A key function's own error reaches the caller; empty parts are refused.
func TestKeyFunctionsFaults(t *testing.T) {
	own := errors.New("no such customer")
	for _, c := range []struct {
		key KeyFunc
		is  error
	}{
		{func(context.Context, json.RawMessage) (string, string, error) { return "", "", own }, own},
		{func(context.Context, json.RawMessage) (string, string, error) { return "", "v", nil }, idem.ErrKeyInvalid},
		{func(context.Context, json.RawMessage) (string, string, error) {
			return idem.SingleTenant, "", nil
		}, idem.ErrKeyInvalid},
		{KeyFrom(func(payment) (string, string) { return "", "" }), idem.ErrKeyInvalid},
	} {
		h := Wrap(newEngine(t, memory()), charge, c.key, func(context.Context, payment) (receipt, error) {
			t.Fatal("the handler ran")
			return receipt{}, nil
		})
		_, err := invoke(t, h, event)
		require.ErrorIs(t, err, c.is)
	}
}

// A result that cannot be recorded is completed without it: this caller and the later ones hear the
// same. aws-lambda-go sends what a reader gives; that cannot be replayed, and {} is no answer.
func TestResultsThatCannotBeRecorded(t *testing.T) {
	for name, result := range map[string]any{
		"no JSON": math.NaN(), "an encoder that panics": panicking{}, "a reader": strings.NewReader("<b>hello</b>"),
		"a buffer": bytes.NewBufferString("hello"), "a reader inside": struct{ *strings.Reader }{strings.NewReader("x")},
	} {
		n := 0
		h := Wrap(newEngine(t, memory()), charge, byPaymentID,
			func(context.Context, payment) (any, error) { n++; return result, nil })
		for i := range 3 {
			out, err := invoke(t, h, event)
			require.ErrorIs(t, err, idem.ErrOutcomeUnavailable, "%s: %s", name, out)
			require.Equal(t, "OutcomeUnavailableError", typeName(err), name)
			if i == 0 && strings.HasPrefix(name, "a ") {
				require.ErrorContains(t, err, "read it first", name)
			}
		}
		require.Equal(t, 1, n, name)
	}
}

// If nothing was recorded the caller hears of the fault itself.
func TestUnencodableResultThatIsNotRecorded(t *testing.T) {
	h := Wrap(newEngine(t, memory()), charge, byPaymentID, func(ctx context.Context, _ payment) (any, error) {
		idem.SetNotExecuted(ctx)
		return math.NaN(), nil
	})
	_, err := invoke(t, h, event)
	require.ErrorAs(t, err, new(*json.UnsupportedValueError))
	require.NotErrorIs(t, err, idem.ErrOutcomeUnavailable)
}

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("half built") }

// A result too large to be kept is the first caller's alone.
func TestTooLargeResultIsLiveOnly(t *testing.T) {
	n := 0
	h := Wrap(newEngine(t, memstore.Options{MaxResult: 10}.New()), charge, byPaymentID,
		func(context.Context, payment) (string, error) {
			n++
			return "more than ten bytes", nil
		})
	require.Equal(t, `"more than ten bytes"`, replies(t, h, event))
	_, err := invoke(t, h, event)
	require.ErrorIs(t, err, idem.ErrOutcomeUnavailable)
	require.Equal(t, 1, n)
}

// By the operation's own rule a result with an error is the outcome.
func TestResultWithAnErrorByTheOperationsRule(t *testing.T) {
	op := charge
	op.Classify = func(_ context.Context, result any, err error) idem.Class {
		if err != nil && result.(receipt).ID != "" {
			return idem.ClassCompleted
		}
		return idem.ClassDefault
	}
	n := 0
	h := Wrap(newEngine(t, memory()), op, byPaymentID, func(context.Context, payment) (receipt, error) {
		n++
		return receipt{ID: "ch_1"}, errors.New("mail not sent")
	})
	for range 2 {
		require.JSONEq(t, `{"id":"ch_1","note":""}`, replies(t, h, event))
	}
	require.Equal(t, 1, n)
}

// A member that differs from one sending to the next does not make a repeat another
// input, where the operation says so.
func TestSelectionOfAnEvent(t *testing.T) {
	selected := WithSelect(fingerprint.Select{Without: []string{"/sentAt"}})
	fn := func(_ context.Context, in json.RawMessage) (string, error) { return string(in), nil }
	byID := Pointer(idem.SingleTenant, "/id")
	for name, make := range map[string]func(...WrapOption) Handler{
		"Wrap":  func(o ...WrapOption) Handler { return Wrap(newEngine(t, memory()), charge, byID, fn, o...) },
		"Async": func(o ...WrapOption) Handler { return Async(newEngine(t, memory()), charge, byID, fn, o...) },
		"StepFunctions": func(o ...WrapOption) Handler {
			return StepFunctions(newEngine(t, memory()), charge, nil, fn, o...)
		},
	} {
		event := func(input string) []byte {
			if name == "StepFunctions" {
				input = `{"executionId":"e","stateName":"s","stateEnteredTime":"t","input":` + input + `}`
			}
			return []byte(input)
		}
		h := make(selected)
		first, err := h(t.Context(), event(`{"id":"a","sentAt":1}`))
		require.NoError(t, err, name)
		again, err := h(t.Context(), event(`{"id":"a","sentAt":2}`))
		require.NoError(t, err, name)
		require.Equal(t, string(first), string(again), name)
		_, err = h(t.Context(), event(`{"id":"a","sentAt":1,"amount":2}`))
		require.ErrorIs(t, err, idem.ErrKeyReused, name)

		h = make()
		_, err = h(t.Context(), event(`{"id":"a","sentAt":1}`))
		require.NoError(t, err, name)
		_, err = h(t.Context(), event(`{"id":"a","sentAt":2}`))
		require.ErrorIs(t, err, idem.ErrKeyReused, name)
	}
}

// A result is encoded by its address, so that a big.Int is more than {}.
func TestWrapEncodesByAddress(t *testing.T) {
	type total struct{ Sum big.Int }
	h := Wrap(newEngine(t, memory()), charge, byPaymentID, func(context.Context, payment) (total, error) {
		return total{*big.NewInt(7)}, nil
	})
	for range 2 {
		require.Equal(t, `{"Sum":7}`, replies(t, h, event))
	}
}

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
		h := Wrap(newEngine(t, memory()), charge,
			func(context.Context, json.RawMessage) (string, string, error) { return idem.SingleTenant, "k", nil },
			func(context.Context, json.RawMessage) (string, error) { return "ran", nil })
		out, err := h(t.Context(), []byte(event))
		require.NoError(t, err, event)
		require.Equal(t, `"ran"`, string(out), event)
	}
}
