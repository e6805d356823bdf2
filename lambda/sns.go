package idemlambda

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// SNSRetention is the default retention of an operation behind a topic. SNS tries to pass
// a notification to Lambda for 23 days
// (https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html), and
// Lambda keeps it up to 6 hours more. The rest of the last day is for the last retries.
const SNSRetention = 24 * 24 * time.Hour

// SNSHandler is a Lambda handler of a topic's notifications, for lambda.Start.
type SNSHandler func(ctx context.Context, event events.SNSEvent) error

// SNS turns a handler of one notification into an idempotent handler of a topic's events.
//
// Standard topics deliver at least once, sometimes twice, with the same message id.
// Lambda invokes the function asynchronously: after an error it does so twice more, and
// then gives the event to the function's on-failure destination or dead-letter queue. A
// producer that publishes twice after a time-out gets two ids: if that matters, let it
// send a key of its own, see [SNSAttribute] and [SNSPointer].
//
// A nil key is [SNSMessageID]. In is decoded from the message as [SQS] decodes a body,
// and the fingerprint is that of the message; [SNSNotificationOf] returns the whole
// notification. [Reason] says what acknowledges. Everything else is returned as an error,
// so that the service delivers the event again. The retention is [SNSRetention] if the
// operation has none. Mistakes in the set-up panic with a [*idem.ConfigError].
func SNS[In any](engine *idem.Engine, op idem.Operation, key RecordKeyFunc[events.SNSEventRecord],
	o *Options[events.SNSEventRecord], fn func(context.Context, In) error) SNSHandler {
	s := newSource(source[events.SNSEventRecord]{
		what: "idemlambda.SNS", noun: "notification", engine: engine, key: keyOr(key, SNSMessageID),
		op: withRetention(op, SNSRetention), opts: optionsOf(o), window: eventWindow("SNS", snsWindow),
		name:          func(r *events.SNSEventRecord) string { return r.SNS.MessageID },
		redeliverFrom: redeliverAll[events.SNSEventRecord],
	}, snsBody, fn)
	return func(ctx context.Context, event events.SNSEvent) error {
		return wholeEvent(s.deliver(ctx, event.Records))
	}
}

func snsBody(r *events.SNSEventRecord) ([]byte, error) { return []byte(r.SNS.Message), nil }

// SNSNotificationOf returns the notification whose handler, key function or hook has
// the context, and false outside one.
func SNSNotificationOf(ctx context.Context) (events.SNSEventRecord, bool) {
	return recordOf[events.SNSEventRecord](ctx)
}

// SNSMessageID takes the key from the topic and the id that SNS gave the message. They
// are the same in every delivery of one publication.
func SNSMessageID(_ context.Context, r *events.SNSEventRecord) (tenant, value string, err error) {
	return parts("notification", [2]string{"TopicArn", r.SNS.TopicArn}, [2]string{"MessageId", r.SNS.MessageID})
}

// SNSAttribute takes the key from the message attribute with this name, and the tenant
// from the attribute tenantAttribute. tenantAttribute may be [idem.SingleTenant]. Both must be
// of type String or Number and not empty. An empty name panics.
func SNSAttribute(tenantAttribute, name string) RecordKeyFunc[events.SNSEventRecord] {
	return byNames("SNSAttribute", "attribute", tenantAttribute, name, snsAttribute)
}

// SNSPointer takes tenant and key from the message's JSON, by the rules of [Pointer].
func SNSPointer(tenantPointer string, values ...string) RecordKeyFunc[events.SNSEventRecord] {
	return inBody("SNSPointer", tenantPointer, values, snsBody)
}

// snsAttribute reads an attribute, which aws-lambda-go leaves undecoded.
func snsAttribute(r *events.SNSEventRecord, name string) (string, error) {
	a, ok := r.SNS.MessageAttributes[name].(map[string]any)
	if !ok {
		return "", fmt.Errorf("%w: the notification has no attribute %q", idem.ErrKeyInvalid, name)
	}
	if kind, _ := a["Type"].(string); kind != "String" && kind != "Number" {
		return "", fmt.Errorf("%w: the message attribute %q is of type %q: send it as String", idem.ErrKeyInvalid, name, kind)
	}
	v, _ := a["Value"].(string)
	if v == "" {
		return "", fmt.Errorf("%w: the message attribute %q is empty", idem.ErrKeyInvalid, name)
	}
	return v, nil
}
