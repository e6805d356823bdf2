package idemlambda

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
)

const (
	// SQSRetention is the default retention of an operation behind a queue. A queue
	// keeps a message for 14 days at most, and its dead-letter queue for 14 more. One
	// day is for the last retries. A redrive into the source starts these times again:
	// if an operator redrives that late, the operation needs a longer retention.
	SQSRetention = 29 * 24 * time.Hour
	// DefaultSQSConcurrency is how many messages of a batch run concurrently: as many
	// as a batch has by default.
	DefaultSQSConcurrency = 10
)

// SQSDelivery is the outcome of one message.
type SQSDelivery = Delivery[events.SQSMessage]

// SQSOptions of a queue's handler: [Options] of its messages. Zero Concurrency means
// [DefaultSQSConcurrency].
type SQSOptions = Options[events.SQSMessage]

// SQSHandler is a Lambda handler of a queue's batches, for lambda.Start.
type SQSHandler func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error)

// SQS turns a handler of one message into an idempotent handler of a queue's batches. Its
// response names exactly the messages that will be redelivered, so the event source
// mapping MUST have ReportBatchItemFailures: without it Lambda takes every response for
// success and deletes the whole batch
// (https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html).
//
// The body is decoded once into In: string and []byte get any body, unchanged. For other
// types it must be JSON; [json.RawMessage] gets it unchanged. The fingerprint is that of the
// body: of its bytes for string and []byte, and otherwise of its canonical JSON. Message
// attributes do not count. [SQSMessageOf] returns the message itself.
//
// [Reason] says what is acknowledged, and so deleted, and what is redelivered. After a
// plain error a repeatable operation runs again with the next delivery. The record of
// another operation becomes unknown and waits to be resolved. Its message is redelivered
// until the queue's receive limit, and ends in the dead-letter queue. [idem.Permanent]
// ends the deliveries. [idem.NotExecuted] asks for the next one, whatever the declaration.
//
// Messages of a standard queue run concurrently, and so do message groups of a FIFO
// queue. See the package's README for order, time and panics.
//
// The retention is [SQSRetention] if the operation has none. A queue may deliver again
// for 14 days. A retention of no more than that is refused if the operation is not
// repeatable, and otherwise logged as a warning. IDEM_QUEUE_REDELIVERY sets another time
// for your queue, in seconds.
//
// The handler never returns an error. Mistakes in the set-up panic with a
// [*idem.ConfigError]. If the environment has settings of the queue and the function (see
// package schema), settings that cannot work together are such a mistake too, and unwise
// ones are logged as warnings.
func SQS[In any](engine *idem.Engine, op idem.Operation, key SQSKeyFunc, o *SQSOptions,
	fn func(context.Context, In) error) SQSHandler {
	s := queueSource("idemlambda.SQS", engine, op, key, o)
	return queueHandler(newSource(s, func(m *events.SQSMessage) ([]byte, error) { return []byte(m.Body), nil }, fn))
}

func queueSource(what string, engine *idem.Engine, op idem.Operation, key SQSKeyFunc,
	o *SQSOptions) source[events.SQSMessage] {
	opts := optionsOf(o)
	opts.Concurrency = cmp.Or(opts.Concurrency, DefaultSQSConcurrency)
	return source[events.SQSMessage]{
		what: what, noun: "message", engine: engine, key: key, op: withRetention(op, SQSRetention), opts: opts,
		window: window{"a queue", sqsWindow, schema.EnvQueueRedelivery},
		name:   func(m *events.SQSMessage) string { return m.MessageId },
		also:   sqsReceives,
		lane:   sqsLane,
	}
}

// queueHandler panics over a set-up that cannot work.
func queueHandler(s *source[events.SQSMessage]) SQSHandler {
	if err := checkSQSSetup(s); err != nil {
		panic(err)
	}
	return func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		return sqsResponse(s.deliver(ctx, event.Records)), nil
	}
}

// SQSMessageOf returns the unchanged message whose handler, key function or hook has the
// context, and false outside one. Its maps are shared: do not change them.
func SQSMessageOf(ctx context.Context) (events.SQSMessage, bool) {
	return recordOf[events.SQSMessage](ctx)
}

// checkSQSSetup reports settings in the environment that cannot work together, and logs
// unwise ones.
func checkSQSSetup(s *source[events.SQSMessage]) error {
	setup, err := readSQSSetup()
	if err == nil {
		err = setup.check(s.op)
	}
	if err != nil {
		return err
	}
	if warning := setup.warning(s.op, s.opts.Concurrency); warning != "" {
		s.logger().Warn("idem: "+warning, "operation", s.op.Name)
	}
	return nil
}

// sqsResponse names the messages to redeliver.
func sqsResponse(ds []delivery[events.SQSMessage]) events.SQSEventResponse {
	res := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	named := map[string]bool{}
	for i := range ds {
		if ds[i].out.Reason.Acknowledges() {
			continue
		}
		// A message without an id, which SQS does not send, cannot be named. Lambda
		// takes an empty name for the failure of the whole batch, so nothing is lost.
		if id := ds[i].out.Event.MessageId; !named[id] {
			named[id] = true
			res.BatchItemFailures = append(res.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
		}
	}
	return res
}

const sqsGroup = "MessageGroupId"

// sqsLane is the group of a FIFO queue's message. It checks the ARN first: messages of
// standard queues may have a group too, which distributes them fairly but does not order
// them.
func sqsLane(m *events.SQSMessage) (string, bool) {
	fifo := m.Attributes[sqsGroup] != ""
	if m.EventSourceARN != "" {
		fifo = strings.HasSuffix(m.EventSourceARN, ".fifo")
	}
	return m.Attributes[sqsGroup], fifo
}

func sqsReceives(m *events.SQSMessage) slog.Attr {
	return slog.String("receives", m.Attributes["ApproximateReceiveCount"])
}
