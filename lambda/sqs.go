package idemlambda

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

const (
	// SQSRetention is the retention of an operation behind a queue that names none.
	// A queue keeps a message for 14 days at most, its dead-letter queue for 14 more,
	// and a day is for the retries at the end of it. A redrive into the source starts
	// a new count: where people redrive that late, the operation needs a longer one.
	SQSRetention = 29 * 24 * time.Hour
	// DefaultSQSConcurrency is how many messages of a batch run side by side: as many
	// as a batch has by default.
	DefaultSQSConcurrency = 10
)

// SQSDelivery is what became of one message.
type SQSDelivery = Delivery[events.SQSMessage]

// SQSOptions of a queue's handler. Nil and zero fields mean the defaults. The
// functions run on the batch's path: they should be quick, and must be safe for
// concurrent use. A panic in them is logged or reported and costs no other
// message anything.
type SQSOptions struct {
	// Concurrency is how many messages of a batch run side by side at most. Zero
	// means [DefaultSQSConcurrency]; 1 means one after the other.
	Concurrency int

	// Select says which parts of a JSON body tell one message from another of the
	// same key; nil means all. A body that an envelope is around needs it where the
	// key is not the envelope's own: two EventBridge events about one order differ in
	// their ids and times. Bodies of type string and []byte take none.
	Select *idem.Select

	// OnFailed gets a message whose permanent failure is recorded, before the message is
	// acknowledged, such as to forward it to a queue where people look at it; package
	// sqsfailures does that. After an error the message is redelivered and OnFailed gets it
	// again, so it may be forwarded twice. Nil acknowledges without it.
	OnFailed func(context.Context, SQSDelivery) error

	// OnOutcome is told what became of every message, once for each, for metrics. Nil
	// means nobody.
	OnOutcome func(context.Context, SQSDelivery)

	// OnRedelivery gets all messages of a batch that are redelivered, in the batch's order,
	// before the response is sent, and if there are any. It has 2 s, half of the
	// time left if that is less. Package sqsvisibility has one that spares twins in
	// flight useless deliveries. Nil means nobody.
	OnRedelivery func(context.Context, []SQSDelivery)

	// Logger gets a line for every message: panics as errors; as warnings recorded
	// failures and messages that are redelivered for a reason of their own; at info level
	// those that only have to wait; the rest at debug level. Bodies and keys' values
	// are not logged, handlers' errors are. Nil means slog.Default.
	Logger *slog.Logger
}

// SQSHandler is a Lambda handler of a queue's batches, for lambda.Start.
type SQSHandler func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error)

// SQS makes a handler of one message an idempotent handler of a queue's batches.
// It names in its response exactly the messages that will be redelivered, so the event
//
//	source mapping MUST have ReportBatchItemFailures: without it Lambda takes
//
// every response for success and deletes the whole batch
// (https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html).
//
// The body is decoded once into In: [json.RawMessage], string and []byte get it as
// it is, everything else as JSON. The fingerprint is that of the body, as
// canonical JSON or, for string and []byte, of its bytes; message attributes are
// no part of it. [SQSMessageOf] gives fn the message itself.
//
// [Reason] says what is acknowledged, and so deleted, and what is redelivered. The
// operation's declaration matters here more than anywhere: after a plain error a
// repeatable operation runs again with the next delivery, one that is not becomes
// unknown, is redelivered until the queue's receive limit, and ends in the dead-letter
// queue, its record waiting to be resolved. [idem.Permanent] ends the deliveries,
// [idem.NotExecuted] asks for the next one whatever the declaration.
//
// A standard queue's messages run side by side, and start in the batch's order. Of
// several with the same key and body one runs, and the others share its outcome; of
// several with the same key and other bodies the first one in the batch gets the key. A FIFO queue's message groups
// run side by side, each in its order; after a message that is redelivered, the rest of
// its group is redelivered without being looked at: a fault of its own is told when its
// turn comes. A queue is FIFO if its ARN says so; an event without an ARN is if its
// messages have a group.
//
// No message starts with less than the operation's MinTime left before the guard,
// which lies [idem.DefaultGuard] before the kill time, a quarter of the
// invocation if that is less, or earlier if the engine says so: what is left
// is redelivered. The handlers' contexts end at the guard. The handler returns when all
// its messages have; one that ignores its context can therefore cost its batch
// the acknowledgements, not the records.
//
// A panic in fn is recorded by the declaration, and its message is redelivered with a
// [*PanicError]. It does not go on as it does in [Wrap]: aws-lambda-go would
// end the process, and every message of the batch, also those that are done, would
// have been received once more for nothing. runtime.Goexit counts as a panic.
//
// The retention is [SQSRetention] if the operation has none; one within the 14 days in
// which a queue may deliver again is refused where the operation is not repeatable, and
// logged as a warning where it is (IDEM_QUEUE_REDELIVERY, in seconds, says that yours
// does so for another time). The handler itself never returns an error. Mistakes in the set-up panic with a [*idem.ConfigError].
// Where the environment tells of the queue and the function (see package schema),
// settings that cannot work together are such a mistake too, and those that are
// unwise are logged as warnings; where it tells nothing, nothing is checked.
func SQS[In any](engine *idem.Engine, op idem.Operation, key SQSKeyFunc, o *SQSOptions, fn func(context.Context, In) error) SQSHandler {
	if o == nil {
		o = &SQSOptions{}
	}
	q := &sqsQueue{onRedelivery: o.OnRedelivery, source: source[events.SQSMessage]{
		what: "idemlambda.SQS", noun: "message", engine: engine, op: withRetention(op, SQSRetention), key: key,
		opts: Options[events.SQSMessage]{
			Concurrency: o.Concurrency, Select: o.Select, OnFailed: o.OnFailed, OnOutcome: o.OnOutcome, Logger: o.Logger,
		},
		name: func(m *events.SQSMessage) string { return m.MessageId }, lane: sqsLane, also: sqsReceives, window: queueWindow(),
	}}
	q.open = func(m *events.SQSMessage) (job, error) {
		in, fp, err := openBody[In]([]byte(m.Body), q.opts.Select)
		return job{fp, func(ctx context.Context) error { return fn(ctx, in) }}, err
	}
	if q.opts.Concurrency == 0 {
		q.opts.Concurrency = DefaultSQSConcurrency
	}
	if err := q.check(fn == nil, isText[In]()); err != nil {
		panic(err)
	}
	if err := q.checkSetup(); err != nil {
		panic(err)
	}
	return q.handle
}

// SQSMessageOf returns the message whose handler, key function or hook has the
// context, as it came, and false outside one. Its maps are shared: do not change
// them.
func SQSMessageOf(ctx context.Context) (events.SQSMessage, bool) {
	return recordOf[events.SQSMessage](ctx)
}

// checkSetup reports what the environment tells of queue and function and cannot
// work together, and logs what is unwise.
func (q *sqsQueue) checkSetup() error {
	setup, err := readSQSSetup()
	if err == nil {
		err = setup.check(q.op)
	}
	if err != nil {
		return err
	}
	for _, warning := range setup.warnings(q.op, q.opts.Concurrency) {
		q.logger().Warn("idem: "+warning, "operation", q.op.Name)
	}
	return nil
}

// sqsRedeliveryTime is what the OnRedelivery hook has: one call for every ten messages,
// and a retry.
const sqsRedeliveryTime = 2 * time.Second

// sqsQueue is the handler of a queue.
type sqsQueue struct {
	source[events.SQSMessage]
	onRedelivery func(context.Context, []SQSDelivery)
}

func (q *sqsQueue) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	res := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	var back []SQSDelivery
	named := map[string]bool{}
	for _, d := range q.deliver(ctx, event.Records) {
		if d.out.Reason.Acknowledges() {
			continue
		}
		back = append(back, d.out)
		// A message without an id, which SQS does not send, cannot be named: Lambda
		// takes an empty name for the failure of the whole batch, which loses nothing.
		if id := d.out.Event.MessageId; !named[id] {
			named[id] = true
			res.BatchItemFailures = append(res.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
		}
	}
	q.tellRedelivery(ctx, back)
	return res, nil
}

const sqsGroup = "MessageGroupId"

// sqsLane is the group of a FIFO queue's message. It asks for the ARN first: messages
// of standard queues may have a group too, which spreads them fairly and orders
// nothing.
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

// tellRedelivery hands the messages that will be redelivered to the hook.
func (q *sqsQueue) tellRedelivery(ctx context.Context, back []SQSDelivery) {
	if q.onRedelivery == nil || len(back) == 0 {
		return
	}
	limit := sqsRedeliveryTime
	if kill, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(kill)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	alone(func() {
		defer func() {
			if r := recover(); r != nil {
				q.logger().LogAttrs(ctx, slog.LevelError, "idem: the OnRedelivery hook panicked", slog.String("panic", fmt.Sprint(r)))
			}
		}()
		q.onRedelivery(ctx, back)
	})
}
