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

// AsyncRetention is the retention of an operation behind asynchronous invocations that
// names none. Lambda retries them for up to 6 hours, with the same
// request id (https://docs.aws.amazon.com/lambda/latest/dg/invocation-async.html).
// EventBridge Scheduler tries for up to 24 hours before that to hand a payload over
// (https://docs.aws.amazon.com/scheduler/latest/APIReference/API_RetryPolicy.html);
// the rest is for the retries at the end.
const AsyncRetention = 36 * time.Hour

// Async makes an idempotent handler of events that Lambda takes asynchronously
// (InvocationType Event, and EventBridge Scheduler). It is [Wrap] with a default key,
// [RequestID], and a retention of [AsyncRetention] if the operation has none. A retention
// of no more than the 6 hours in which Lambda retries is a mistake in the set-up of an
// operation that is not repeatable, and logged as a warning for one that is.
//
// Lambda delivers at least once: its queue may hand an event over twice, and after an
// error it invokes the function twice more by default. The result goes to the
// on-success destination, an error that is left to the on-failure destination. A caller
// that invokes again after a time-out makes another event, under another request id:
// where it matters, take the key from the event with [Pointer]. EventBridge Scheduler is
// such a caller: see [EventBridge] for its execution id.
func Async[In, Out any](engine *idem.Engine, op idem.Operation, key KeyFunc, fn func(context.Context, In) (Out, error), o ...WrapOption) Handler {
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

// RequestID takes the key from the invocation's request id, the same in all attempts
// of an asynchronous invocation. For synchronous invocations it protects nothing: each
// has its own.
func RequestID(ctx context.Context, _ json.RawMessage) (tenant, value string, err error) {
	lc, ok := lambdacontext.FromContext(ctx)
	if !ok || lc.AwsRequestID == "" {
		return "", "", fmt.Errorf("%w: the context has no request id: it is not that of an invocation", idem.ErrKeyInvalid)
	}
	return idem.NoTenant, lc.AwsRequestID, nil
}
