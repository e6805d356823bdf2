package idemlambda_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/schema"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

func TestAWorkerRunsWhatWasAccepted(t *testing.T) {
	op := idem.Operation{Name: "statement"}
	for name, c := range map[string]struct {
		end     error
		reasons []idemlambda.Reason // of the message's deliveries
		state   idem.State
	}{
		"done": {nil, []idemlambda.Reason{idemlambda.ReasonExecuted, idemlambda.ReasonReplayed}, idem.Completed},
		"fails": {idem.Permanent(errors.New("no such account")),
			[]idemlambda.Reason{idemlambda.ReasonFailed, idemlambda.ReasonFailed}, idem.Failed},
		"not executed": {idem.NotExecuted(errors.New("busy")),
			[]idemlambda.Reason{idemlambda.ReasonReleased, idemlambda.ReasonReleased}, idem.Released},
		"uncertain": {errors.New("time-out"), []idemlambda.Reason{idemlambda.ReasonUnknown, idemlambda.ReasonUnknown},
			idem.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			h := idemtest.New(t, nil)
			key := op.Key("acme", "june")
			var id string
			_, err := later.Accept[string](t.Context(), h.Engine, key,
				3, func(_ context.Context, record string) error { id = record; return nil })
			require.NoError(t, err)
			var outcomes []idemlambda.Reason
			handle := idemlambda.SQSWorker(h.Engine, op,
				&idemlambda.SQSOptions{OnOutcome: func(_ context.Context, d idemlambda.SQSDelivery) {
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

// A message is not deleted before its outcome is in the record, whatever the handler has ended with: otherwise no other
// call would go on with the work, if the process dies.
func TestAWorkersMessageWaitsForItsOutcome(t *testing.T) {
	ends := []error{nil, idem.Permanent(errors.New("declined")), idem.NotExecuted(errors.New("busy")), errors.New("plain")}
	for _, end := range ends {
		for _, repeat := range []idem.Repeat{idem.NotRepeatable, idem.Repeatable} {
			op := idem.Operation{Name: "statement", Repeat: repeat}
			h := idemtest.New(t, nil)
			key := op.Key("acme", "june")
			_, err := later.Accept[string](t.Context(), h.Engine, key, 3, func(context.Context, string) error { return nil })
			require.NoError(t, err)
			h.Faults.Always(idemtest.LoseRequest, idemtest.Finish)
			var got []idemlambda.SQSDelivery
			handle := idemlambda.SQSWorker(h.Engine, op,
				&idemlambda.SQSOptions{OnOutcome: func(_ context.Context, d idemlambda.SQSDelivery) { got = append(got, d) }},
				func(context.Context, int) (string, error) { return "done", end })
			res, err := handle(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: key.ID()}}})
			require.NoError(t, err)
			require.Len(t, res.BatchItemFailures, 1, "%v %v", repeat, end)
			require.Equal(t, idemlambda.ReasonUnrecorded, got[0].Reason)
			require.ErrorContains(t, got[0].Err, "the outcome of attempt 1 is not written yet")
			require.WithinRange(t, got[0].LeaseUntil, time.Now(), time.Now().Add(time.Hour))
			if end != nil {
				require.ErrorContains(t, got[0].Err, end.Error())
				require.NotErrorIs(t, got[0].Err, end, "nothing may take it for a recorded failure")
			}
			require.Equal(t, idem.InProgress, h.Record(key).State)
		}
	}
}

// What no record is accepted for goes to the dead-letter queue, not away: the function may look at another table.
func TestAWorkersMessageWithoutAcceptedWorkIsRedelivered(t *testing.T) {
	op := idem.Operation{Name: "statement", Retention: 30 * 24 * time.Hour}
	h := idemtest.New(t, nil)
	done := op.Key("acme", "done")
	_, err := idem.Do(t.Context(), h.Engine, done, 3, func(context.Context, int) (int, error) { return 3, nil })
	require.NoError(t, err)
	var reasons []idemlambda.Reason
	handle := idemlambda.SQSWorker(h.Engine, op,
		&idemlambda.SQSOptions{Concurrency: 1, OnOutcome: func(_ context.Context, d idemlambda.SQSDelivery) {
			reasons = append(reasons, d.Reason)
		}}, func(context.Context, int) (string, error) { panic("nothing was accepted") })
	var event events.SQSEvent
	for _, body := range []string{op.Key("acme", "none").ID(), done.ID(), "",
		"{}", idem.Operation{Name: "refund"}.Key("acme", "x").ID()} {
		event.Records = append(event.Records, events.SQSMessage{MessageId: "m" + body, Body: body})
	}
	res, err := handle(t.Context(), event)
	require.NoError(t, err)
	require.Len(t, res.BatchItemFailures, len(event.Records))
	require.Equal(t, []idemlambda.Reason{
		idemlambda.ReasonNotAccepted, idemlambda.ReasonNotAccepted, idemlambda.ReasonBodyUnreadable,
		idemlambda.ReasonKeyInvalid, idemlambda.ReasonKeyInvalid,
	}, reasons)
}

// The stream of the table brings the worker where nothing was handed over. It brings all other
// changes of the table too.
func TestAStreamBringsTheWorker(t *testing.T) {
	op, other := idem.Operation{Name: "statement"}, idem.Operation{Name: "refund"}
	h := idemtest.New(t, nil)
	for _, key := range []idem.Key{op.Key("acme", "june"), op.Key(idem.SingleTenant, "july"), other.Key("acme", "june")} {
		_, err := later.Accept[string](t.Context(), h.Engine, key, 3, nil)
		require.NoError(t, err)
	}
	text := events.NewStringAttribute
	var event events.DynamoDBEvent
	change := func(id, sk string, image map[string]events.DynamoDBAttributeValue) {
		var r events.DynamoDBEventRecord
		r.Change.SequenceNumber = fmt.Sprint(len(event.Records))
		r.Change.Keys = map[string]events.DynamoDBAttributeValue{schema.PK: text(id), schema.SK: text(sk)}
		r.Change.NewImage = image
		event.Records = append(event.Records, r)
	}
	accepted := func(state idem.State) map[string]events.DynamoDBAttributeValue {
		return map[string]events.DynamoDBAttributeValue{schema.State: text(string(state)), schema.Ticket: text("t")}
	}
	june, july := op.Key("acme", "june").ID(), op.Key(idem.SingleTenant, "july").ID()
	change("payment#7", "#", map[string]events.DynamoDBAttributeValue{schema.State: events.NewNumberAttribute("7")})
	change(june, "#", nil) // deleted
	change(june, schema.OutboxSK+"1", accepted(idem.Pending))
	change(op.Key("acme", "may").ID(), "#",
		map[string]events.DynamoDBAttributeValue{schema.State: text(string(idem.Released))})
	change(june, "#", accepted(idem.InProgress))
	change(other.Key("acme", "june").ID(), "#", accepted(idem.Pending))
	change(june, "#", accepted(idem.Pending))
	change(july, "#", accepted(idem.Released))
	change(june, "#", accepted(idem.Completed))
	var reasons []idemlambda.Reason
	busy := true
	handle := idemlambda.StreamWorker(h.Engine, op, &idemlambda.Options[events.DynamoDBEventRecord]{
		OnOutcome: func(_ context.Context, d idemlambda.Delivery[events.DynamoDBEventRecord]) {
			reasons = append(reasons, d.Reason)
		}}, func(_ context.Context, in int) (string, error) {
		require.Equal(t, 3, in)
		if busy {
			busy = false
			return "", idem.NotExecuted(errors.New("busy"))
		}
		return "done", nil
	})
	res, err := handle(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, []events.DynamoDBBatchItemFailure{{ItemIdentifier: "6"}}, res.BatchItemFailures)
	res, err = handle(t.Context(), events.DynamoDBEvent{Records: event.Records[6:]})
	require.NoError(t, err)
	require.Empty(t, res.BatchItemFailures)
	require.Equal(t, []idemlambda.Reason{idemlambda.ReasonReleased, idemlambda.ReasonBlocked, idemlambda.ReasonExecuted,
		idemlambda.ReasonExecuted}, reasons)
	require.Equal(t, idem.Completed, h.Record(op.Key("acme", "june")).State)
	require.Equal(t, idem.Completed, h.Record(op.Key(idem.SingleTenant, "july")).State)
	require.Equal(t, idem.Pending, h.Record(other.Key("acme", "june")).State)
}

func TestAWorkerInShadowIsAMistake(t *testing.T) {
	h := idemtest.New(t, nil)
	op := idem.Operation{Name: "statement", Shadow: true}
	require.PanicsWithError(t, `idem: idemlambda.SQSWorker of operation "statement": Shadow records nothing that a `+
		`worker could run: set it to false`, func() {
		idemlambda.SQSWorker(h.Engine, op, nil, func(context.Context, int) (string, error) { return "", nil })
	})
}

// On a FIFO queue a tenant's work is done in the order of its acceptance: what comes behind work
// that is to be redelivered waits, and other tenants go on.
func TestAWorkerKeepsTheOrderOfAGroup(t *testing.T) {
	op := idem.Operation{Name: "statement"}
	h := idemtest.New(t, nil)
	var event events.SQSEvent
	for _, key := range []idem.Key{op.Key("acme", "june"), op.Key("acme", "july"), op.Key("umbrella", "june")} {
		_, err := later.Accept[string](t.Context(), h.Engine, key, key.Tenant(), nil)
		require.NoError(t, err)
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: fmt.Sprint(len(event.Records)), Body: key.ID(),
			EventSourceARN: "arn:aws:sqs:eu-central-1:123456789012:work.fifo",
			Attributes:     map[string]string{"MessageGroupId": key.Tenant(), "SequenceNumber": fmt.Sprint(len(event.Records))},
		})
	}
	busy := true
	handle := idemlambda.SQSWorker(h.Engine, op, &idemlambda.SQSOptions{Concurrency: 1},
		func(_ context.Context, tenant string) (string, error) {
			if tenant == "acme" && busy {
				return "", idem.NotExecuted(errors.New("busy"))
			}
			return "done", nil
		})
	res, err := handle(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, []events.SQSBatchItemFailure{{ItemIdentifier: "0"}, {ItemIdentifier: "1"}}, res.BatchItemFailures)
	require.Equal(t, idem.Pending, h.Record(op.Key("acme", "july")).State, "no worker has begun it")
	busy = false
	res, err = handle(t.Context(), events.SQSEvent{Records: event.Records[:2]})
	require.NoError(t, err)
	require.Empty(t, res.BatchItemFailures)
}
