package idemlambda

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

const (
	// KinesisRetention is the default retention of an operation behind a stream: the
	// seven days of extended retention, and one more. A stream keeps records for a day
	// by default and for a year at most, and Lambda retries for as long: set a longer
	// retention than your stream's
	// (https://docs.aws.amazon.com/streams/latest/dev/kinesis-extended-retention.html).
	KinesisRetention = 8 * 24 * time.Hour
	// DynamoDBStreamRetention is the default retention of an operation behind a table's
	// stream, which keeps records for 24 hours.
	DynamoDBStreamRetention = 48 * time.Hour
)

type (
	// KinesisHandler is a Lambda handler of a stream's batches, for lambda.Start.
	KinesisHandler func(ctx context.Context, event events.KinesisEvent) (events.KinesisEventResponse, error)
	// DynamoDBStreamHandler is a Lambda handler of a table's changes, for lambda.Start.
	DynamoDBStreamHandler func(ctx context.Context, event events.DynamoDBEvent) (events.DynamoDBEventResponse, error)
)

// ErrTimeWindow is the answer of [Kinesis] and [DynamoDBStream] to an event of a tumbling
// window; nothing has been executed. With such a mapping the function passes a state from
// one batch of the window to the next
// (https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-parameters.html). A
// replayed record adds nothing to the state, so the sum would be wrong.
var ErrTimeWindow = errors.New("idemlambda: the event is that of a tumbling window, whose state a replayed " +
	"record cannot add to: leave TumblingWindowInSeconds out of the event source mapping, or use a handler " +
	"without idempotency")

// Invoke makes h a Handler of aws-lambda-go, which passes it the payload unchanged. It
// answers the events of tumbling windows with [ErrTimeWindow] and calls h for all others.
func (h KinesisHandler) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	return outsideWindow(ctx, payload, h)
}

// Invoke does the same as that of [KinesisHandler].
func (h DynamoDBStreamHandler) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	return outsideWindow(ctx, payload, h)
}

func outsideWindow[E, R any](ctx context.Context, payload []byte,
	h func(context.Context, E) (R, error)) ([]byte, error) {
	var in struct {
		Window *events.Window `json:"window"`
	}
	if err := json.Unmarshal(payload, &in); err != nil {
		return nil, err
	}
	if in.Window != nil {
		return nil, ErrTimeWindow
	}
	var event E
	if err := json.Unmarshal(payload, &event); err != nil {
		return nil, err
	}
	res, err := h(ctx, event)
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}

// Kinesis turns a handler of one record into an idempotent handler of a stream's batches.
//
// Lambda delivers each record at least once. A batch with an error is sent again, in
// halves if the event source mapping bisects, until its retries or its age are used up;
// then it goes to the on-failure destination
// (https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html). A producer that
// retries puts two records: if that matters, take the key from the data with
// [KinesisPointer]. Data that the Kinesis Producer Library has aggregated must be
// deaggregated first.
//
// The response names the first record that is redelivered, so the mapping MUST have
// ReportBatchItemFailures: without it Lambda takes every response for success. Records
// run in order, and none runs after one that is redelivered. With a Concurrency of more
// than 1, records of different partition keys run concurrently, and the order holds for
// each partition key. Records that ran after the named one are then delivered once more
// and replayed. A record that can never succeed blocks its shard until the mapping
// gives up; a record with an [idem.Permanent] error does not. Tumbling windows are not
// supported, see [ErrTimeWindow].
//
// A nil key is [KinesisSequence]. In is decoded from the data as [SQS] decodes a body,
// and the fingerprint is that of the data; [KinesisRecordOf] returns the whole record. The
// retention is [KinesisRetention] if the operation has none. The handler returns no error
// if it is called with an event. Mistakes in the set-up panic with a [*idem.ConfigError].
func Kinesis[In any](engine *idem.Engine, op idem.Operation, key RecordKeyFunc[events.KinesisEventRecord],
	o *Options[events.KinesisEventRecord], fn func(context.Context, In) error) KinesisHandler {
	s := newSource(streamSource(source[events.KinesisEventRecord]{
		what: "idemlambda.Kinesis", engine: engine, key: keyOr(key, KinesisSequence),
		op: withRetention(op, KinesisRetention), opts: optionsOf(o),
		name: func(r *events.KinesisEventRecord) string { return r.Kinesis.SequenceNumber },
	}, func(r *events.KinesisEventRecord) string { return r.Kinesis.PartitionKey }), kinesisBody, fn)
	return func(ctx context.Context, event events.KinesisEvent) (events.KinesisEventResponse, error) {
		res := events.KinesisEventResponse{BatchItemFailures: []events.KinesisBatchItemFailure{}}
		if at := firstRedelivered(s.deliver(ctx, event.Records)); at < len(event.Records) {
			res.BatchItemFailures = append(res.BatchItemFailures, events.KinesisBatchItemFailure{
				ItemIdentifier: event.Records[at].Kinesis.SequenceNumber,
			})
		}
		return res, nil
	}
}

// streamSource is a source whose records run in order: all of them, or side by side those of one
// subject. Records that run one after the other need no redeliverFrom: nothing is acknowledged
// behind a redelivered one.
func streamSource[R any](s source[R], subject func(*R) string) source[R] {
	s.noun, s.window = "record", eventWindow("a stream", streamWindow)
	if s.opts.Concurrency <= 1 {
		s.lane = func(*R) (string, bool) { return "", true }
		return s
	}
	s.lane = func(r *R) (string, bool) { return subject(r), true }
	s.redeliverFrom = firstRedelivered[R]
	return s
}

func kinesisBody(r *events.KinesisEventRecord) ([]byte, error) { return r.Kinesis.Data, nil }

// KinesisRecordOf returns the record whose handler, key function or hook has the
// context, and false outside one.
func KinesisRecordOf(ctx context.Context) (events.KinesisEventRecord, bool) {
	return recordOf[events.KinesisEventRecord](ctx)
}

// KinesisSequence takes the key from the stream, the shard and the sequence number. They
// are the same in every delivery of a record.
func KinesisSequence(_ context.Context, r *events.KinesisEventRecord) (tenant, value string, err error) {
	return parts("record", [2]string{"eventSourceARN", r.EventSourceArn}, [2]string{"eventID", r.EventID})
}

// KinesisPointer takes tenant and key from the data's JSON, by the rules of [Pointer].
func KinesisPointer(tenantPointer string, values ...string) RecordKeyFunc[events.KinesisEventRecord] {
	return inBody("KinesisPointer", tenantPointer, values, kinesisBody)
}

// DynamoDBStream turns a handler of one change into an idempotent handler of a table's
// stream.
//
// The stream has each change once. Lambda delivers it at least once, and retries as with
// [Kinesis], for up to the 24 hours for which the stream keeps it
// (https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html). Order,
// ReportBatchItemFailures and records that block their shard are as with Kinesis. With a
// Concurrency of more than 1, changes of different items run concurrently.
//
// A nil key is [DynamoDBStreamEventID]. The handler gets the record itself, and only the
// key tells records apart. The retention is [DynamoDBStreamRetention] if the operation has
// none. The handler returns no error if it is called with an event. Mistakes in the set-up
// panic with a [*idem.ConfigError].
func DynamoDBStream(engine *idem.Engine, op idem.Operation, key RecordKeyFunc[events.DynamoDBEventRecord],
	o *Options[events.DynamoDBEventRecord],
	fn func(context.Context, events.DynamoDBEventRecord) error) DynamoDBStreamHandler {
	s := newRawSource(tableSource("idemlambda.DynamoDBStream", engine, op, keyOr(key, DynamoDBStreamEventID), o), fn)
	return func(ctx context.Context, event events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
		return deliverChanges(ctx, s, event.Records), nil
	}
}

func tableSource(what string, engine *idem.Engine, op idem.Operation, key RecordKeyFunc[events.DynamoDBEventRecord],
	o *Options[events.DynamoDBEventRecord]) source[events.DynamoDBEventRecord] {
	return streamSource(source[events.DynamoDBEventRecord]{
		what: what, engine: engine, key: key, op: withRetention(op, DynamoDBStreamRetention), opts: optionsOf(o),
		name: func(r *events.DynamoDBEventRecord) string { return r.Change.SequenceNumber },
	}, itemKey)
}

func deliverChanges(ctx context.Context, s *source[events.DynamoDBEventRecord],
	changes []events.DynamoDBEventRecord) events.DynamoDBEventResponse {
	res := events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{}}
	if at := firstRedelivered(s.deliver(ctx, changes)); at < len(changes) {
		res.BatchItemFailures = append(res.BatchItemFailures, events.DynamoDBBatchItemFailure{
			ItemIdentifier: changes[at].Change.SequenceNumber,
		})
	}
	return res
}

// DynamoDBStreamEventID takes the key from the stream and the event's id, which are the
// same in every delivery of a change.
func DynamoDBStreamEventID(_ context.Context, r *events.DynamoDBEventRecord) (tenant, value string, err error) {
	return parts("record", [2]string{"eventSourceARN", r.EventSourceArn}, [2]string{"eventID", r.EventID})
}

// itemKey names the item that a change is about.
func itemKey(r *events.DynamoDBEventRecord) string {
	text, err := json.Marshal(r.Change.Keys) // in the order of the names
	if err != nil {
		return ""
	}
	return string(text)
}
