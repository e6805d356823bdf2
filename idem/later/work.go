package later

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/codec"
	"github.com/idem-go/idempotency/idem/protocol"
)

// ErrNotAccepted: nothing that was accepted for later waits or has ended under the id: it has
// expired, or there never was any.
var ErrNotAccepted = protocol.ErrNotAccepted

// Work runs fn for the operation that was accepted for later in the record with the id, with
// the input that [Accept] was given. It claims the record and records how fn ended, as [idem.Run]
// does; it claims before fn runs, also in [idem.Atomic] mode. A later call for the same record gets
// the recorded outcome, so that the message that brought it can be deleted; an error that matches
// [idem.ErrInFlight], [idem.ErrStoreUnavailable] or [idem.ErrOutOfTime] says to come again, and
// [ErrNotAccepted] that there is nothing to run. A call whose fn has run gets [idem.ErrInFlight] too
// if its outcome is not written yet. Work is safe for concurrent use.
func Work[In, Out any](ctx context.Context, e *idem.Engine, op idem.Operation, id string,
	fn func(context.Context, In) (Out, error)) (idem.Result[Out], error) {
	var res idem.Result[Out]
	if e == nil || fn == nil {
		return res, &idem.ConfigError{What: "worker", Problem: "the engine or the handler is nil"}
	}
	if err := codec.CheckResult(reflect.TypeFor[Out]()); err != nil {
		return res, err
	}
	op.Mode = idem.Reserved // the record must tell that the work has begun
	call, input, err := accepted(ctx, e, op, id)
	if err != nil {
		return res, err
	}
	classifies := op.Classify != nil
	call.Run = func(ctx context.Context) idem.Answer {
		var in In
		if err := codec.Decode("the recorded input", input, &in); err != nil {
			return idem.Answer{Err: idem.NotExecuted(err)}
		}
		v, err := fn(ctx, in)
		if err != nil && !classifies {
			return idem.Answer{Err: err, Value: v}
		}
		ans := idem.Answer{Value: v, Err: err}
		ans.Body, ans.Omitted = codec.Through(v, &res.Value)
		return ans
	}
	res.Outcome, err = e.Execute(ctx, call)
	if res.Outcome.Executed && res.Outcome.RecordState == idem.InProgress {
		// Once its message is deleted no other call would continue the work, if this process dies before it writes.
		err = &unwritten{cause: err, inFlight: idem.InFlightError{
			Attempt: res.Outcome.Attempt, LeaseLeft: idem.DefaultLease + idem.DefaultMargin,
		}}
	}
	if err != nil {
		res.Value = *new(Out)
		return res, err
	}
	if !res.Outcome.Executed {
		res.Value = *new(Out)
		err = codec.DecodeResult(res.Outcome.Body, &res.Value)
	}
	return res, err
}

// unwritten is the error of an attempt that has ended, and whose outcome is not in the record yet. It does not match
// the handler's error, by which a caller may delete the message.
type unwritten struct {
	cause    error
	inFlight idem.InFlightError
}

func (e *unwritten) Error() string {
	text := fmt.Sprintf("later: the outcome of attempt %d is not written yet", e.inFlight.Attempt)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *unwritten) Unwrap() error { return &e.inFlight }

// accepted reads the record that a worker's call runs, and its input.
func accepted(ctx context.Context, e *idem.Engine, op idem.Operation, id string) (c idem.Call,
	input []byte, err error) {
	c.Key = op.KeyFromID(id)
	if err := c.Key.Err(); err != nil {
		return c, nil, err
	}
	if op.Shadow {
		return c, nil, &idem.ConfigError{What: "operation " + op.Name,
			Problem: "Shadow records nothing that a worker could run: set it to false"}
	}
	rec, err := e.Lookup(ctx, c.Key)
	switch {
	case err != nil:
		return c, nil, err
	case rec == nil || rec.Ticket == "" || rec.Expired(e.Now()):
		return c, nil, ErrNotAccepted
	}
	if rec.Accepted() {
		ctx, cancel := within(ctx, rec.Steps[protocol.AcceptedStep].Body.Stored)
		defer cancel()
		if input, err = e.Store().StepResult(ctx, rec, protocol.AcceptedStep); err != nil {
			return c, nil, err
		}
	}
	c.Fingerprint, c.Codec, c.Accepted = rec.Fingerprint, rec.Codec, rec
	return c, input, nil
}

// within bounds a call to the store that carries so many bytes, as the engine bounds those that write an end.
func within(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 2*time.Second+time.Duration(size)*time.Second>>20)
}
