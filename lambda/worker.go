package idemlambda

import (
	"context"
	"errors"
	"reflect"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// SQSWorker turns a typed handler into the handler of a queue that brings work which was
// accepted for later: each message's body is the id of its record, as [later.Accept] hands it
// over. The handler gets the recorded input, and its result is what the status says. Messages,
// retries, reasons, options and mistakes are those of [SQS], except that o must have no Select.
// The declaration is that of the acceptance. A message about a record that waits no more gets
// the recorded outcome and is acknowledged. On a FIFO queue whose messages have the tenant as
// their group, the work of a tenant is done in the order of its acceptance.
func SQSWorker[In, Out any](engine *idem.Engine, op idem.Operation, o *SQSOptions,
	fn func(context.Context, In) (Out, error)) SQSHandler {
	s := queueSource("idemlambda.SQSWorker", engine, op, SQSMessageID(idem.SingleTenant), o)
	return queueHandler(workSource(s, func(m *events.SQSMessage) string { return m.Body }, fn))
}

// StreamWorker is [SQSWorker] without a queue: the stream of the table brings the worker, and
// the acceptance hands nothing over. It runs records of the operation that wait for a worker,
// and passes over all other changes of the table. The stream must have new images. A filter of
// the event source mapping saves the invocations for those others:
//
//	{"dynamodb": {"NewImage": {"ticket": {"S": [{"exists": true}]}, "in_state": {"S": ["pending", "released"]}}}}
//
// Order, retries and what blocks a shard are as with [DynamoDBStream]: work that is released
// again and again holds up its shard until the mapping gives the record up.
func StreamWorker[In, Out any](engine *idem.Engine, op idem.Operation, o *Options[events.DynamoDBEventRecord],
	fn func(context.Context, In) (Out, error)) DynamoDBStreamHandler {
	s := workSource(tableSource("idemlambda.StreamWorker", engine, op, DynamoDBStreamEventID, o), recordOfChange, fn)
	return func(ctx context.Context, event events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
		var waiting []events.DynamoDBEventRecord
		for _, r := range event.Records {
			if waitsForWorker(&r, op.Name) {
				waiting = append(waiting, r)
			}
		}
		return deliverChanges(ctx, s, waiting), nil
	}
}

// workSource makes a source of events that each name a record of accepted work.
func workSource[R, In, Out any](s source[R], id func(*R) string, fn func(context.Context, In) (Out, error)) *source[R] {
	if err := idem.CheckResultType(reflect.TypeFor[Out]()); err != nil {
		panic(err)
	}
	if s.op.Shadow {
		panic(invalid(s.what, s.op, "Shadow records nothing that a worker could run: set it to false"))
	}
	engine, op := s.engine, s.op
	s.open = func(r *R) (job, error) {
		id := id(r)
		if id == "" {
			return job{}, errNoID
		}
		return job{id: id, accepted: true, work: func(ctx context.Context) (idem.Outcome, error) {
			r, err := later.Work(ctx, engine, op, id, fn)
			return r.Outcome, err
		}}, nil
	}
	return s.ready(fn == nil, true)
}

var errNoID = errors.New("idemlambda: the body is empty: it must be the id of the record, " +
	"as later.Accept hands it over")

// waitsForWorker reports whether a change leaves a record of the operation that a worker may run.
func waitsForWorker(r *events.DynamoDBEventRecord, operation string) bool {
	image := r.Change.NewImage
	if textOf(r.Change.Keys, schema.SK) != schema.RecordSK || textOf(image, schema.Ticket) == "" {
		return false
	}
	if s := protocol.State(textOf(image, schema.State)); s != protocol.Pending && s != protocol.Released {
		return false
	}
	_, name, _ := protocol.ParseRecordID(recordOfChange(r))
	return name == operation
}

// recordOfChange is the id of the record that a change is about.
func recordOfChange(r *events.DynamoDBEventRecord) string { return textOf(r.Change.Keys, schema.PK) }

func textOf(image map[string]events.DynamoDBAttributeValue, name string) string {
	v, ok := image[name]
	if !ok || v.DataType() != events.DataTypeString {
		return ""
	}
	return v.String()
}
