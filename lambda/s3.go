package idemlambda

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// S3Retention is the default retention of an operation behind a bucket. S3 passes on a
// notification within minutes, seldom later, and Lambda keeps it up to 6 hours. Two days
// leave room for both.
const S3Retention = 48 * time.Hour

// S3Handler is a Lambda handler of a bucket's notifications, for lambda.Start.
type S3Handler func(ctx context.Context, event events.S3Event) error

// S3 turns a handler of one notification into an idempotent handler of a bucket's events.
//
// S3 delivers at least once and in no order
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/EventNotifications.html);
// repeats of one notification have the same sequencer. Lambda invokes the function
// asynchronously: after an error it does so twice more, and then gives the event to the
// function's on-failure destination or dead-letter queue.
//
// A nil key is [S3ObjectVersion]. The handler gets the record itself. Only the key distinguishes
// notifications: parts that differ in a repeat, such as its time, are not compared.
// [Reason] says what acknowledges. Everything else is returned as an error, so that the
// service delivers the event again. The retention is [S3Retention] if the operation has
// none. Mistakes in the set-up panic with a [*idem.ConfigError].
func S3(engine *idem.Engine, op idem.Operation, key RecordKeyFunc[events.S3EventRecord],
	o *Options[events.S3EventRecord], fn func(context.Context, events.S3EventRecord) error) S3Handler {
	s := newRawSource(source[events.S3EventRecord]{
		what: "idemlambda.S3", noun: "notification", engine: engine,
		key: keyOr(key, S3ObjectVersion), op: withRetention(op, S3Retention),
		window: eventWindow("Lambda", asyncWindow),
		name:   func(r *events.S3EventRecord) string { return r.S3.Bucket.Name + "/" + r.S3.Object.Key },

		redeliverFrom: redeliverAll[events.S3EventRecord], opts: optionsOf(o),
	}, fn)
	return func(ctx context.Context, event events.S3Event) error {
		return wholeEvent(s.deliver(ctx, event.Records))
	}
}

// S3ObjectVersion takes the key from the event's name, the bucket, the object's key
// and version, and the sequencer: together they name one change of one object. Only
// events of created or removed objects have a sequencer. Other events, such as those of
// tags, access lists, restores and lifecycle rules, are refused with [idem.ErrKeyInvalid]:
// a version's tags may change twice, and nothing would tell the second change from a
// repeat of the first. Give them a key function of their own.
func S3ObjectVersion(_ context.Context, r *events.S3EventRecord) (tenant, value string, err error) {
	o := &r.S3.Object
	if r.S3.Bucket.Name == "" || o.Key == "" {
		return "", "", fmt.Errorf("%w: the notification has no bucket or no object", idem.ErrKeyInvalid)
	}
	if o.Sequencer == "" {
		return "", "", fmt.Errorf("%w: the notification of %s has no sequencer: give a key function that knows what tells "+
			"its kind apart", idem.ErrKeyInvalid, r.EventName)
	}
	return idem.SingleTenant, identityOf(r.EventName, r.S3.Bucket.Name, o.Key, "v"+o.VersionID, "s"+o.Sequencer), nil
}
