package idemlambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// What the service delivers again for another record's sake is not forwarded each
// time: it is forwarded when it is acknowledged.
func TestOnFailedWaitsForTheAcknowledgement(t *testing.T) {
	ok := func(context.Context, string) error { return nil }
	for name, entry := range map[string]func(*idem.Engine, func(string), func(Reason), func(context.Context, string) error) func() bool{
		"kinesis, side by side": func(e *idem.Engine, forwarded func(string), told func(Reason), fn func(context.Context, string) error) func() bool {
			h := Kinesis(e, transfer, nil, &Options[events.KinesisEventRecord]{Concurrency: 2, Logger: quiet,
				OnFailed: func(_ context.Context, d Delivery[events.KinesisEventRecord]) error {
					forwarded(string(d.Event.Kinesis.Data))
					return nil
				},
				OnOutcome: func(_ context.Context, d Delivery[events.KinesisEventRecord]) { told(d.Reason) },
			}, fn)
			var event events.KinesisEvent
			for i, body := range []string{"bad", "later", "bad too"} {
				event.Records = append(event.Records, events.KinesisEventRecord{EventID: fmt.Sprint(i), EventSourceArn: "s",
					Kinesis: events.KinesisRecord{Data: []byte(body), PartitionKey: body, SequenceNumber: fmt.Sprint(i)}})
			}
			return func() bool {
				res, err := h(t.Context(), event)
				require.NoError(t, err)
				if len(res.BatchItemFailures) == 0 {
					return false
				}
				for event.Records[0].Kinesis.SequenceNumber != res.BatchItemFailures[0].ItemIdentifier {
					event.Records = event.Records[1:]
				}
				return true
			}
		},
		"kafka, as a whole": func(e *idem.Engine, forwarded func(string), told func(Reason), fn func(context.Context, string) error) func() bool {
			o := &KafkaOptions{}
			o.Logger = quiet
			o.OnFailed = func(_ context.Context, d Delivery[events.KafkaRecord]) error {
				forwarded(d.Event.Value)
				return nil
			}
			o.OnOutcome = func(_ context.Context, d Delivery[events.KafkaRecord]) { told(d.Reason) }
			h := Kafka(e, transfer, nil, o, fn)
			var event events.KafkaEvent
			require.NoError(t, json.Unmarshal([]byte(`{"bootstrapServers": "b:9092", "records": {
				"t-0": [{"topic": "t", "partition": 0, "offset": 1, "value": "YmFk"}],
				"t-1": [{"topic": "t", "partition": 1, "offset": 1, "value": "bGF0ZXI="}],
				"t-2": [{"topic": "t", "partition": 2, "offset": 1, "value": "YmFkIHRvbw=="}]}}`), &event))
			return func() bool {
				_, err := h(t.Context(), event)
				return err != nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			forwarded, told := map[string]int{}, map[Reason]int{}
			var mu sync.Mutex
			down := true
			deliver := entry(newEngine(t, memory()), func(body string) { forwarded[body]++ }, func(r Reason) { mu.Lock(); defer mu.Unlock(); told[r]++ },
				func(ctx context.Context, body string) error {
					switch {
					case body != "later":
						return idem.Permanent(errors.New("no such account"))
					case down:
						return errors.New("not yet")
					}
					return ok(ctx, body)
				})
			for range 5 {
				require.True(t, deliver())
			}
			for body, n := range forwarded {
				require.Equal(t, 1, n, "%s: what is acknowledged while the others are redelivered", body)
			}
			require.Equal(t, 5, told[ReasonReleased])
			down = false
			require.False(t, deliver())
			require.Len(t, forwarded, 2)
			for body, n := range forwarded {
				require.Equal(t, 1, n, body)
			}
			require.Equal(t, 1, told[ReasonExecuted])
		})
	}
}

// What cannot be forwarded is redelivered, with all that depends on it.
func TestOnFailedFailsLast(t *testing.T) {
	full := errors.New("the queue of failures is full")
	told := map[string]Reason{}
	h := Kinesis(newEngine(t, memory()), transfer, nil, &Options[events.KinesisEventRecord]{Concurrency: 3, Logger: quiet,
		OnFailed: func(_ context.Context, d Delivery[events.KinesisEventRecord]) error {
			if d.Event.EventID == "1" {
				return full
			}
			return nil
		},
		OnOutcome: func(_ context.Context, d Delivery[events.KinesisEventRecord]) { told[d.Event.EventID] = d.Reason },
	}, func(context.Context, string) error { return idem.Permanent(errors.New("no such account")) })
	var event events.KinesisEvent
	for i := range 3 {
		event.Records = append(event.Records, events.KinesisEventRecord{EventID: fmt.Sprint(i), EventSourceArn: "s",
			Kinesis: events.KinesisRecord{PartitionKey: fmt.Sprint(i), SequenceNumber: fmt.Sprint(i)}})
	}
	res, err := h(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, []events.KinesisBatchItemFailure{{ItemIdentifier: "1"}}, res.BatchItemFailures)
	require.Equal(t, map[string]Reason{"0": ReasonFailed, "1": ReasonFailureNotForwarded, "2": ReasonFailed}, told)
}

// Brokers have no order of their own.
func TestKafkaClusterByItsBrokers(t *testing.T) {
	runs := 0
	h := Kafka(newEngine(t, memory()), transfer, nil, nil, func(context.Context, string) error { runs++; return nil })
	for _, brokers := range []string{"b:9092,a:9092", "a:9092,b:9092", " a:9092, b:9092"} {
		event := events.KafkaEvent{BootstrapServers: brokers, Records: map[string][]events.KafkaRecord{"t-0": {{Topic: "t", Offset: 7}}}}
		_, err := h(t.Context(), event)
		require.NoError(t, err)
	}
	require.Equal(t, 1, runs)
}

// The hook for what is redelivered gets it in the event's order, from any source.
func TestOnRedeliveryOfAStream(t *testing.T) {
	var got []string
	h := Kinesis(newEngine(t, memory()), transfer, nil, &Options[events.KinesisEventRecord]{Logger: quiet,
		OnRedelivery: func(_ context.Context, all []Delivery[events.KinesisEventRecord]) {
			for _, d := range all {
				got = append(got, d.Event.EventID+" "+string(d.Reason))
			}
		},
	}, func(_ context.Context, body string) error {
		if body == "1" {
			return errors.New("not yet")
		}
		return nil
	})
	var event events.KinesisEvent
	for i := range 3 {
		event.Records = append(event.Records, events.KinesisEventRecord{EventID: fmt.Sprint(i), EventSourceArn: "s",
			Kinesis: events.KinesisRecord{PartitionKey: "p", SequenceNumber: fmt.Sprint(i), Data: []byte(fmt.Sprint(i))}})
	}
	_, err := h(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, []string{"1 released", "2 behind_failure"}, got)
}
