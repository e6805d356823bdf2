package idemlambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// One event comes twice, in two envelopes. The line of the refusal says what to do if its key is of a member of the
// body, and other members count.
func TestAReusedKeyOfAMemberNamesSelect(t *testing.T) {
	queue := func(key idemlambda.SQSKeyFunc, sel *fingerprint.Select) func(*idem.Engine, *slog.Logger, string) error {
		return func(e *idem.Engine, log *slog.Logger, body string) error {
			h := idemlambda.SQS(e, idem.Operation{Name: "order"}, key, &idemlambda.SQSOptions{Logger: log, Select: sel},
				func(context.Context, json.RawMessage) error { return nil })
			_, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: body}}})
			return err
		}
	}
	pointer := func(values ...string) idemlambda.SQSKeyFunc {
		return idemlambda.SQSPointer(idem.SingleTenant, values...)
	}
	for name, c := range map[string]struct {
		send   func(*idem.Engine, *slog.Logger, string) error
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
			h := idemlambda.SQS(e, idem.Operation{Name: "order"}, pointer("/detail/id"), &idemlambda.SQSOptions{Logger: log},
				func(context.Context, string) error { return nil })
			_, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: body}}})
			return err
		}},
		"handler's own": {send: func(e *idem.Engine, log *slog.Logger, body string) error {
			h := idemlambda.SQS(e, idem.Operation{Name: body[:1] + "order", Repeat: idem.Repeatable},
				pointer("/detail/id"), &idemlambda.SQSOptions{Logger: log, Select: nil},
				func(context.Context, json.RawMessage) error { return idem.NotExecuted(&idem.ReusedError{}) })
			_, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: body}}})
			return err
		}},
		"EventBridge": {send: func(e *idem.Engine, log *slog.Logger, body string) error {
			h := idemlambda.EventBridge(e, idem.Operation{Name: "order"},
				idemlambda.EventBridgePointer(idem.SingleTenant, "/detail/id"),
				&idemlambda.Options[events.EventBridgeEvent]{Logger: log},
				func(context.Context, json.RawMessage) error { return nil })
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
