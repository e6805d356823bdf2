package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

const (
	// SQSRetention is the retention of an operation behind a queue that names none.
	// A queue keeps a message for 14 days at most, its dead-letter queue for 14 more
	// (a redrive into the source starts a new count), and a day is for the retries
	// at the end of it.
	SQSRetention = 29 * 24 * time.Hour
	// DefaultSQSConcurrency is how many messages of a batch run side by side: as many
	// as a batch has by default.
	DefaultSQSConcurrency = 10
)

// SQSOptions of a queue's handler. Nil and zero fields mean the defaults.
type SQSOptions struct {
	// Concurrency is how many messages of a batch run side by side at most. Zero
	// means [DefaultSQSConcurrency]; 1 means one after the other.
	Concurrency int

	// Outcome is told what became of every message, once for each, for metrics and
	// for what a team does about the messages that come back. It runs on the batch's
	// path: it should be quick, and must be safe for concurrent use. A panic in it
	// is logged and changes nothing. Nil means nobody.
	Outcome func(context.Context, SQSOutcome)

	// Logger gets a line for every message: panics as errors, messages that go back
	// and recorded failures as warnings, the rest at debug level. Bodies and keys'
	// values are not logged, handlers' errors are. Nil means slog.Default.
	Logger *slog.Logger
}

// SQSHandler is a Lambda handler of a queue's batches, for lambda.Start.
type SQSHandler func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error)

// SQS makes a handler of one message an idempotent handler of a queue's batches.
// It names in its response exactly the messages that go back to the queue, so the
// event source mapping MUST have ReportBatchItemFailures: without it Lambda takes
// every response for success and deletes the whole batch
// (https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html).
//
// The body is decoded once into In: [json.RawMessage], string and []byte get it as
// it is, everything else as JSON. The fingerprint is that of the body, as
// canonical JSON or, for string and []byte, of its bytes; message attributes are
// no part of it. [SQSMessageOf] gives fn the message itself.
//
// [SQSReason] says what is acknowledged, and so deleted, and what goes back. The
// operation's declaration matters here more than anywhere: after a plain error a
// repeatable operation runs again with the next delivery, one that is not becomes
// unknown, comes back until the queue's receive limit, and ends in the dead-letter
// queue, its record waiting to be resolved. [idem.Permanent] ends the deliveries,
// [idem.NotExecuted] asks for the next one whatever the declaration.
//
// A standard queue's messages run side by side. Several with the same key run one
// after the other, and those with the same input share one outcome: the handler
// runs once. A FIFO queue's message groups run side by side, each in its order;
// after a message that goes back, the rest of its group goes back without being
// run. A queue is FIFO if its ARN says so; an event without an ARN is if its
// messages have a group.
//
// No message starts with less than the operation's MinTime left before the guard,
// which lies [idem.DefaultGuard] before the kill time, a quarter of the
// invocation if that is less, or earlier if the engine says so: what is left goes
// back. The handlers' contexts end at the guard. The handler returns when all
// its messages have; one that ignores its context can therefore cost its batch
// the acknowledgements, not the records.
//
// A panic in fn is recorded by the declaration, and its message goes back with a
// [*SQSPanicError]. It does not go on as it does in [Wrap]: aws-lambda-go would
// end the process, and every message of the batch, also those that are done, would
// have been received once more for nothing.
//
// The retention is [SQSRetention] if the operation has none. The handler itself
// never returns an error. Mistakes in the set-up panic with a [*idem.ConfigError].
func SQS[In any](engine *idem.Engine, op idem.Operation, key SQSKeyFunc, o *SQSOptions, fn func(context.Context, In) error) SQSHandler {
	if o == nil {
		o = &SQSOptions{}
	}
	if err := checkSQS(engine, op, key, o, fn == nil); err != nil {
		panic(err)
	}
	q := &sqsQueue{engine: engine, op: sqsOperation(op), key: key, opts: *o, decode: func(body string) (sqsWork, error) {
		in, fp, err := decodeSQS[In](body)
		return sqsWork{fp, func(ctx context.Context) error { return fn(ctx, in) }}, err
	}}
	if q.opts.Concurrency == 0 {
		q.opts.Concurrency = DefaultSQSConcurrency
	}
	return q.handle
}

func checkSQS(engine *idem.Engine, op idem.Operation, key SQSKeyFunc, o *SQSOptions, noHandler bool) error {
	bad := func(problem string) error {
		return &idem.ConfigError{What: fmt.Sprintf("idemlambda.SQS of operation %q", op.Name), Problem: problem}
	}
	switch {
	case engine == nil:
		return bad("the engine is nil: make one with idem.New")
	case op.Check() != nil:
		return op.Check()
	case key == nil:
		return bad("the key function is nil: say where the key is, such as idemlambda.SQSAttribute(idem.NoTenant, idemlambda.SQSKeyAttribute)")
	case noHandler:
		return bad("the handler is nil")
	case o.Concurrency < 0:
		return bad(fmt.Sprintf("Concurrency is %d: use at least 1, or zero for %d", o.Concurrency, DefaultSQSConcurrency))
	}
	return nil
}

// sqsOperation is the operation as a queue needs it. A message's handler has no
// result: its success goes to the engine as errNotCompleted, which the engine
// returns unless the success is the outcome, and which the operation's own rule
// must not see.
func sqsOperation(op idem.Operation) idem.Operation {
	if op.Retention == 0 {
		op.Retention = SQSRetention
	}
	rule := op.Classify
	if rule == nil {
		return op
	}
	op.Classify = func(ctx context.Context, result any, err error) idem.Class {
		if err != errNotCompleted {
			return rule(ctx, result, err)
		}
		c := rule(ctx, result, nil)
		if c == idem.ClassFailed {
			// As everywhere: a failure without an error is a result.
			return idem.ClassCompleted
		}
		return c
	}
	return op
}

// sqsWork is a message that is ready to run.
type sqsWork struct {
	fingerprint idem.Fingerprint
	run         func(context.Context) error
}

func decodeSQS[In any](body string) (in In, fp idem.Fingerprint, err error) {
	switch p := any(&in).(type) {
	case *string:
		*p = body
		return in, idem.FingerprintBytes([]byte(body)), nil
	case *[]byte:
		*p = []byte(body)
		return in, idem.FingerprintBytes([]byte(body)), nil
	}
	if fp, err = idem.FingerprintJSON([]byte(body), nil); err != nil {
		return in, "", err
	}
	if p, ok := any(&in).(*json.RawMessage); ok {
		*p = json.RawMessage(body)
		return in, fp, nil
	}
	return in, fp, json.Unmarshal([]byte(body), &in)
}

type sqsMessageKey struct{}

// SQSMessageOf returns the message whose handler has the context, as it came, and
// false outside one. Its maps are shared: do not change them.
func SQSMessageOf(ctx context.Context) (events.SQSMessage, bool) {
	m, ok := ctx.Value(sqsMessageKey{}).(*events.SQSMessage)
	if !ok {
		return events.SQSMessage{}, false
	}
	return *m, true
}
