package idemlambda

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
)

// makers make a handler of each source that delivers again, with how long it does.
var makers = map[string]struct {
	window time.Duration
	env    string
	make   func(*idem.Engine, idem.Operation)
}{
	"SQS":         {14 * day, schema.EnvQueueRedelivery, func(e *idem.Engine, op idem.Operation) { SQS(e, op, byAttribute, nil, ignore) }},
	"SNS":         {23*day + 6*time.Hour, schema.EnvEventRedelivery, func(e *idem.Engine, op idem.Operation) { SNS(e, op, nil, nil, ignore) }},
	"EventBridge": {30 * time.Hour, schema.EnvEventRedelivery, func(e *idem.Engine, op idem.Operation) { EventBridge(e, op, nil, nil, ignore) }},
	"S3": {6 * time.Hour, schema.EnvEventRedelivery, func(e *idem.Engine, op idem.Operation) {
		S3(e, op, nil, nil, func(context.Context, events.S3EventRecord) error { return nil })
	}},
	"Kinesis": {day, schema.EnvEventRedelivery, func(e *idem.Engine, op idem.Operation) { Kinesis(e, op, nil, nil, ignore) }},
	"DynamoDBStream": {day, schema.EnvEventRedelivery, func(e *idem.Engine, op idem.Operation) {
		DynamoDBStream(e, op, nil, nil, func(context.Context, events.DynamoDBEventRecord) error { return nil })
	}},
	"Kafka":         {7 * day, schema.EnvEventRedelivery, func(e *idem.Engine, op idem.Operation) { Kafka(e, op, nil, nil, ignore) }},
	"Async":         {6 * time.Hour, schema.EnvEventRedelivery, func(e *idem.Engine, op idem.Operation) { Async(e, op, nil, task) }},
	"StepFunctions": {14 * day, schema.EnvEventRedelivery, func(e *idem.Engine, op idem.Operation) { StepFunctions(e, op, nil, task) }},
}

func ignore(context.Context, string) error { return nil }

func task(context.Context, json.RawMessage) (string, error) { return "", nil }

// A delivery after its record has expired runs again: that is refused where it would do
// harm, and told where it would not.
func TestRetentionWithinTheSourcesDeliveries(t *testing.T) {
	standard := slog.Default()
	defer slog.SetDefault(standard)
	for name, m := range makers {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			start := func(repeat idem.Repeat, keep time.Duration) func() {
				return func() {
					m.make(newEngine(t, memory()), idem.Operation{Name: "close-month", Repeat: repeat, Retention: keep})
				}
			}
			requireConfigPanic(t, start(idem.NotRepeatable, m.window), name, "close-month", "Retention is "+m.window.String(), m.env)
			require.NotPanics(t, start(idem.NotRepeatable, m.window+time.Second))
			require.NotPanics(t, start(idem.NotRepeatable, 0), "the source's own retention is long enough")
			require.Empty(t, log.String())
			require.NotPanics(t, start(idem.Repeatable, m.window))
			require.Contains(t, log.String(), "level=WARN")
			require.Contains(t, log.String(), m.env)

			// What the stack says of the source stands above what its service documents.
			t.Setenv(m.env, "3600")
			require.NotPanics(t, start(idem.NotRepeatable, time.Hour+time.Second))
			requireConfigPanic(t, start(idem.NotRepeatable, time.Hour), m.env)
			t.Setenv(m.env, "an hour")
			requireConfigPanic(t, start(idem.Repeatable, 0), m.env, `"an hour"`, "seconds")
		})
	}
}
