package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/idem-go/idempotency/idem"
)

// AsyncRetention is the default retention of an operation behind asynchronous
// invocations. Lambda retries them for up to 6 hours, with the same
// request id (https://docs.aws.amazon.com/lambda/latest/dg/invocation-async.html).
// Before that EventBridge Scheduler tries for up to 24 hours to pass on a payload
// (https://docs.aws.amazon.com/scheduler/latest/APIReference/API_RetryPolicy.html).
// The rest is for the last retries.
const AsyncRetention = 36 * time.Hour

// Async makes an idempotent handler of events that Lambda takes asynchronously
// (InvocationType Event, and EventBridge Scheduler). It is [Wrap] with a default key,
// [RequestID], and a retention of [AsyncRetention] if the operation has none. Lambda
// retries for 6 hours. A retention of no more than that is a mistake in the set-up of an
// operation that is not repeatable, and is logged as a warning for a repeatable one.
//
// Lambda delivers at least once: its queue may deliver an event twice, and after an error
// it invokes the function twice more by default. The result goes to the on-success
// destination, the last error to the on-failure destination. A caller that invokes again
// after a time-out makes another event, under another request id: if that matters, take
// the key from the event with [Pointer]. EventBridge Scheduler is such a caller: see
// [EventBridge] for its execution id.
func Async[In, Out any](engine *idem.Engine, op idem.Operation, key KeyFunc, fn func(context.Context, In) (Out, error),
	o ...WrapOption) Handler {
	if key == nil {
		key = RequestID
	}
	op = withRetention(op, AsyncRetention)
	h := wrap("idemlambda.Async", engine, op, key, fn, o)
	if err := eventWindow("Lambda", asyncWindow).check("idemlambda.Async", op, slog.Default()); err != nil {
		panic(err)
	}
	return h
}

// RequestID takes the key from the invocation's request id, which is the same in all
// attempts of an asynchronous invocation. It does not protect synchronous invocations:
// each has its own.
func RequestID(ctx context.Context, _ json.RawMessage) (tenant, value string, err error) {
	lc, ok := lambdacontext.FromContext(ctx)
	if !ok || lc.AwsRequestID == "" {
		return "", "", fmt.Errorf("%w: the context has no request id: use the context of an invocation", idem.ErrKeyInvalid)
	}
	return idem.SingleTenant, lc.AwsRequestID, nil
}
