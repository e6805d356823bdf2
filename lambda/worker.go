package idemlambda

import (
	"context"
	"errors"
	"reflect"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
)

// SQSWorker turns a typed handler into the handler of a queue that brings work which was
// accepted for later: each message's body is the id of its record, as [later.Accept] hands it
// over. The handler gets the recorded input, and its result is what the status says. Messages,
// retries, reasons, options and mistakes are those of [SQS], except that o must have no Select.
// The declaration is that of the acceptance. A message about a record that waits no more gets
// the recorded outcome and is acknowledged.
func SQSWorker[In, Out any](engine *idem.Engine, op idem.Operation, o *SQSOptions, fn func(context.Context, In) (Out, error)) SQSHandler {
	if err := idem.CheckResultType(reflect.TypeFor[Out]()); err != nil {
		panic(err)
	}
	s, opts := queueSource("idemlambda.SQSWorker", engine, op, SQSMessageID(idem.NoTenant), o)
	op, s.opts = s.op, *opts
	s.open = func(m *events.SQSMessage) (job, error) {
		if m.Body == "" {
			return job{}, errNoID
		}
		return job{id: m.Body, work: func(ctx context.Context) (idem.Outcome, error) {
			r, err := later.Work(ctx, engine, op, m.Body, fn)
			return r.Outcome, err
		}}, nil
	}
	return queueHandler(s.ready(fn == nil, true))
}

var errNoID = errors.New("idemlambda: the body is empty: it must be the id of the record, as later.Accept hands it over")
