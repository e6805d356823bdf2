package idemlambda_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

func TestAWorkerRunsWhatWasAccepted(t *testing.T) {
	op := idem.Operation{Name: "statement"}
	for name, c := range map[string]struct {
		end     error
		reasons []idemlambda.Reason // of the message's deliveries
		state   idem.State
	}{
		"done":         {nil, []idemlambda.Reason{idemlambda.ReasonExecuted, idemlambda.ReasonReplayed}, idem.Completed},
		"fails":        {idem.Permanent(errors.New("no such account")), []idemlambda.Reason{idemlambda.ReasonFailed, idemlambda.ReasonFailed}, idem.Failed},
		"not executed": {idem.NotExecuted(errors.New("busy")), []idemlambda.Reason{idemlambda.ReasonReleased, idemlambda.ReasonReleased}, idem.Released},
		"uncertain":    {errors.New("time-out"), []idemlambda.Reason{idemlambda.ReasonUnknown, idemlambda.ReasonUnknown}, idem.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			h := idemtest.New(t, nil)
			key := op.Key("acme", "june")
			var id string
			_, err := later.Accept[string](t.Context(), h.Engine, key, 3, func(_ context.Context, record string) error { id = record; return nil })
			require.NoError(t, err)
			var outcomes []idemlambda.Reason
			handle := idemlambda.SQSWorker(h.Engine, op, &idemlambda.SQSOptions{OnOutcome: func(_ context.Context, d idemlambda.SQSDelivery) {
				require.Equal(t, key.ID(), d.RecordID)
				outcomes = append(outcomes, d.Reason)
			}}, func(ctx context.Context, in int) (string, error) {
				require.Equal(t, 3, in)
				info, ok := idem.InfoOf(ctx)
				require.True(t, ok)
				require.Equal(t, "acme", info.Tenant)
				return "done", c.end
			})
			for range 2 {
				res, err := handle(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: id}}})
				require.NoError(t, err)
				require.Equal(t, outcomes[len(outcomes)-1].Acknowledges(), len(res.BatchItemFailures) == 0)
			}
			require.Equal(t, c.reasons, outcomes)
			require.Equal(t, c.state, h.Record(key).State)
		})
	}
}

// What no record is accepted for goes to the dead-letter queue, not away: the function may look
// at another table.
func TestAWorkersMessageWithoutAcceptedWorkIsRedelivered(t *testing.T) {
	op := idem.Operation{Name: "statement", Retention: 30 * 24 * time.Hour}
	h := idemtest.New(t, nil)
	done := op.Key("acme", "done")
	_, err := idem.Do(t.Context(), h.Engine, done, 3, func(context.Context, int) (int, error) { return 3, nil })
	require.NoError(t, err)
	var reasons []idemlambda.Reason
	handle := idemlambda.SQSWorker(h.Engine, op, &idemlambda.SQSOptions{Concurrency: 1, OnOutcome: func(_ context.Context, d idemlambda.SQSDelivery) {
		reasons = append(reasons, d.Reason)
	}}, func(context.Context, int) (string, error) { panic("nothing was accepted") })
	var event events.SQSEvent
	for _, body := range []string{op.Key("acme", "none").ID(), done.ID(), "", "{}", idem.Operation{Name: "refund"}.Key("acme", "x").ID()} {
		event.Records = append(event.Records, events.SQSMessage{MessageId: "m" + body, Body: body})
	}
	res, err := handle(t.Context(), event)
	require.NoError(t, err)
	require.Len(t, res.BatchItemFailures, len(event.Records))
	require.Equal(t, []idemlambda.Reason{
		idemlambda.ReasonNotAccepted, idemlambda.ReasonNotAccepted, idemlambda.ReasonBodyUnreadable, idemlambda.ReasonKeyInvalid, idemlambda.ReasonKeyInvalid,
	}, reasons)
}
