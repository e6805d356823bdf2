package idemlambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/stretchr/testify/require"
)

// A program without an option says which invocation parked which record, and nothing of the
// key's value or the request.
func TestWithoutOptionsAParkedAttemptIsLoggedWithItsRequest(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func(stdout *os.File, logger *slog.Logger) {
		os.Stdout = stdout
		slog.SetDefault(logger)
	}(os.Stdout, slog.Default())
	os.Stdout = out
	slog.SetDefault(lambdacontext.NewLogger())
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	refund := idem.Operation{Name: "refund"}
	h := idemlambda.Wrap(engine, refund, idemlambda.Pointer("/Customer", "/ID"),
		func(context.Context, struct{ Secret string }) (int, error) {
			return 0, errors.New("the provider did not answer")
		})
	ctx := lambdacontext.NewContext(t.Context(),
		&lambdacontext.LambdaContext{AwsRequestID: "8476a536-e9f4-11e8-9739-2dfe598c3fcd"})
	_, err = h(ctx, []byte(`{"Customer":"acme","ID":"the-key's-value","Secret":"a secret"}`))
	require.Error(t, err)
	line, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Regexp(t, `^[^\n]*level=WARN message="idem: parked as unknown, an operator must resolve `+
		`it \(where none is needed, return idem\.NotExecuted, idem\.Permanent or idem\.PermanentStep, or call `+
		`idem\.SetNotExecuted before a response; declare what may run twice idem\.Repeatable\)" kind=parked record=`+
		refund.Key("acme", "the-key's-value").ID()+
		` operation=refund elapsed=\S+ attempt=1 state=unknown error="the provider did not answer" `+
		`requestId=8476a536-e9f4-11e8-9739-2dfe598c3fcd\n$`, string(line))
	require.NotContains(t, string(line), "secret")
	require.NotContains(t, string(line), "the-key's-value")
}

// Decoders, encoders and panics quote what was sent. The default log has what is wrong, and where.
func TestNoErrorTakesTheBodyToTheDefaultLog(t *testing.T) {
	const card, person = "4111111111111111", "Jane Doe, 1 High Street"
	type order struct {
		ID   string    `json:"id"`
		Card int32     `json:"card"`
		Born time.Time `json:"born"`
	}
	bodies := []string{
		`{"id":"1","card":` + card + `}`, `{"id":"1","born":"` + person + `"}`, `{"id":"1","` + person +
			`":1,"` + person + `":2}`,
		`{"id":"1","card":` + card + `e999}`, `{"id":"2"}`,
	}
	work := func(context.Context, order) (int, error) { return 1, nil }
	op := idem.Operation{Name: "order"}
	shadow := idem.Operation{Name: "order", Shadow: true}
	pointer := idemlambda.Pointer(idem.SingleTenant, "/id")
	unreadable := func(context.Context, json.RawMessage) (string, string, error) { panic(person) }
	nothing := func(context.Context, order) error { return nil }
	wrapped := func(h idemlambda.Handler) func(string) {
		return func(body string) { _, _ = h(t.Context(), []byte(body)) }
	}
	queue := func(h idemlambda.SQSHandler) func(string) {
		return func(body string) {
			_, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: body}}})
			require.NoError(t, err)
		}
	}
	byID := idemlambda.SQSPointer(idem.SingleTenant, "/id")
	for name, c := range map[string]struct {
		send  func(e *idem.Engine) func(body string)
		wants string
	}{
		"an event in shadow": {func(e *idem.Engine) func(string) {
			return wrapped(idemlambda.Wrap(e, shadow, pointer, work))
		}, `does not decode: the JSON number at byte 33 does not fit \"card\" of type int32`},
		"a key in shadow": {func(e *idem.Engine) func(string) {
			return wrapped(idemlambda.Wrap(e, shadow, unreadable, work))
		}, `the key function panicked at log_test.go`},
		"a decoded key in shadow": {func(e *idem.Engine) func(string) {
			by := idemlambda.KeyFrom(func(o order) (string, string) { return idem.SingleTenant, o.ID })
			return wrapped(idemlambda.Wrap(e, shadow, by,
				func(context.Context, struct{ ID string }) (int, error) { return 1, nil }))
		}, "the event does not decode"},
		"a message in shadow": {func(e *idem.Engine) func(string) {
			return queue(idemlambda.SQS(e, shadow, byID, nil, nothing))
		}, "does not decode"},
		"a message": {func(e *idem.Engine) func(string) { return queue(idemlambda.SQS(e, op, byID, nil, nothing)) },
			"an error of type *time.ParseError"},
		"a message's key": {func(e *idem.Engine) func(string) {
			return queue(idemlambda.SQS(e, op,
				func(context.Context, *events.SQSMessage) (string, string, error) { panic(person) }, nil, nothing))
		}, "panic: a value of type string"},
		"a message's handler": {func(e *idem.Engine) func(string) {
			return queue(idemlambda.SQS(e, op, byID, nil, func(context.Context, json.RawMessage) error {
				_, err := strconv.Atoi(person)
				panic(err)
			}))
		}, "panic: an error of type *errors.errorString"},
		"a message's hooks": {func(e *idem.Engine) func(string) {
			return queue(idemlambda.SQS(e, op, byID, &idemlambda.SQSOptions{
				OnOutcome:    func(context.Context, idemlambda.SQSDelivery) { panic(person) },
				OnRedelivery: func(context.Context, []idemlambda.SQSDelivery) { panic(card) },
			}, nothing))
		}, "the hook panicked at log_test.go"},
		"a result": {func(e *idem.Engine) func(string) {
			return wrapped(idemlambda.Wrap(e, op, pointer,
				func(context.Context, json.RawMessage) (secretive, error) { return secretive(person), nil }))
		}, "recorded without its result"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			defer slog.SetDefault(slog.Default())
			slog.SetDefault(slog.New(slog.NewJSONHandler(&out, nil)))
			engine, err := idem.New(memstore.New(), nil)
			require.NoError(t, err)
			send := c.send(engine)
			for _, body := range bodies {
				send(body)
			}
			require.Contains(t, out.String(), c.wants)
			require.NotContains(t, out.String(), card)
			require.NotContains(t, out.String(), "Jane Doe")
		})
	}
}

type secretive string

func (s secretive) MarshalJSON() ([]byte, error) {
	return nil, errors.New("no encoding for " + string(s))
}

// brokenLog is a log that panics over each line.
type brokenLog struct{ slog.Handler }

func (brokenLog) Enabled(context.Context, slog.Level) bool { return true }

func (brokenLog) Handle(context.Context, slog.Record) error { panic("log") }

// A logger that panics costs its lines: the other messages are worked on and acknowledged.
func TestALoggerThatPanicsCostsNoMessage(t *testing.T) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	ran := 0
	h := idemlambda.SQS(engine, idem.Operation{Name: "order"}, idemlambda.SQSPointer(idem.SingleTenant, "/id"),
		&idemlambda.SQSOptions{
			Logger:       slog.New(brokenLog{}),
			OnOutcome:    func(context.Context, idemlambda.SQSDelivery) { panic("hook") },
			OnRedelivery: func(context.Context, []idemlambda.SQSDelivery) { panic("hook") },
		}, func(context.Context, json.RawMessage) error { ran++; return nil })
	var sent []events.SQSMessage
	for _, body := range []string{`{"id":"1"}`, `no JSON`, `{"id":"2"}`} {
		sent = append(sent, events.SQSMessage{MessageId: body, Body: body})
	}
	answer, err := h(t.Context(), events.SQSEvent{Records: sent})
	require.NoError(t, err)
	require.Equal(t, []events.SQSBatchItemFailure{{ItemIdentifier: "no JSON"}}, answer.BatchItemFailures)
	require.Equal(t, 2, ran)
}

// One event comes twice, in two envelopes. The line of the refusal says what to do if its key is of a member of the
// body, and other members count.
func TestAReusedKeyOfAMemberNamesSelect(t *testing.T) {
	type sends = func(*idem.Engine, *slog.Logger, string) error
	once := idem.Operation{Name: "order"}
	nothing := func(context.Context, json.RawMessage) error { return nil }
	message := func(h idemlambda.SQSHandler, body string) error {
		_, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: body}}})
		return err
	}
	queue := func(key idemlambda.SQSKeyFunc, sel *fingerprint.Select) sends {
		return func(e *idem.Engine, log *slog.Logger, body string) error {
			return message(idemlambda.SQS(e, once, key, &idemlambda.SQSOptions{Logger: log, Select: sel}, nothing), body)
		}
	}
	pointer := func(values ...string) idemlambda.SQSKeyFunc {
		return idemlambda.SQSPointer(idem.SingleTenant, values...)
	}
	for name, c := range map[string]struct {
		send   sends
		member string // that is named
		same   bool   // the second is a repeat
	}{
		"member":            {send: queue(pointer("/detail/id"), nil), member: "/detail"},
		"members":           {send: queue(pointer("/detail/a/b", "/detail/id"), nil), member: "/detail"},
		"inner members":     {send: queue(pointer("/detail/a/b", "/detail/a/c"), nil), member: "/detail/a"},
		"alike names":       {send: queue(pointer("/detail/id", "/details/id"), nil)},
		"body":              {send: queue(pointer("/subject"), nil)},
		"body, too":         {send: queue(pointer("/detail/id", "/subject"), nil)},
		"selected":          {send: queue(pointer("/detail/id"), &fingerprint.Select{Only: []string{"/detail"}}), same: true},
		"selected too much": {send: queue(pointer("/detail/id"), &fingerprint.Select{Without: []string{"/subject"}})},
		"within a function": {send: queue(func(ctx context.Context, m *events.SQSMessage) (string, string, error) {
			return pointer("/detail/id")(ctx, m)
		}, nil), member: "/detail"},
		"function": {send: queue(func(context.Context, *events.SQSMessage) (string, string, error) {
			return idem.SingleTenant, "1", nil
		}, nil)},
		"whole body": {send: func(e *idem.Engine, log *slog.Logger, body string) error {
			return message(idemlambda.SQS(e, once, pointer("/detail/id"), &idemlambda.SQSOptions{Logger: log},
				func(context.Context, string) error { return nil }), body)
		}},
		"handler's own": {send: func(e *idem.Engine, log *slog.Logger, body string) error {
			op := idem.Operation{Name: body[:1] + "order", Repeat: idem.Repeatable}
			return message(idemlambda.SQS(e, op, pointer("/detail/id"), &idemlambda.SQSOptions{Logger: log},
				func(context.Context, json.RawMessage) error { return idem.NotExecuted(&idem.ReusedError{}) }), body)
		}},
		"EventBridge": {send: func(e *idem.Engine, log *slog.Logger, body string) error {
			h := idemlambda.EventBridge(e, once, idemlambda.EventBridgePointer(idem.SingleTenant, "/detail/id"),
				&idemlambda.Options[events.EventBridgeEvent]{Logger: log}, nothing)
			return h(t.Context(), events.EventBridgeEvent{ID: "e", Detail: json.RawMessage(body)})
		}, member: "/detail"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(slog.NewJSONHandler(&out, nil))
			engine, err := idem.New(memstore.New(), &idem.Options{Observer: idem.LogTo(slog.New(slog.DiscardHandler))})
			require.NoError(t, err)
			const body = `{"id":"%d","subject":"s","time":"%[1]d","detail":{"id":"1","a":{"b":"2","c":"3"}},` +
				`"details":{"id":"4"}}`
			_ = c.send(engine, log, fmt.Sprintf(body, 1))
			out.Reset()
			err = c.send(engine, log, fmt.Sprintf(body, 2))
			if c.same {
				require.NoError(t, err)
				require.Empty(t, out.String(), "a repeat")
				return
			}
			var line struct{ Error string }
			require.NoError(t, json.Unmarshal(out.Bytes(), &line))
			require.Contains(t, line.Error, "the key was already used with another input")
			if c.member == "" {
				require.NotContains(t, line.Error, "Select")
				return
			}
			require.Contains(t, line.Error, fmt.Sprintf("the key is of its member %q: if other members differ between "+
				"deliveries of the same, set Options.Select, such as to Only: []string{%[1]q}", c.member))
			if err != nil {
				require.ErrorIs(t, err, idem.ErrKeyReused)
				require.ErrorContains(t, err, "Options.Select")
			}
		})
	}
}
