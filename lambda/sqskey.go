package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// SQSKeyFunc finds tenant and value of the key in a message. It returns
// [idem.NoTenant] as the tenant where there is none. It must not change or keep
// the message and must be safe for concurrent use. With an error the message is
// redelivered and nothing is executed.
type SQSKeyFunc = RecordKeyFunc[events.SQSMessage]

// SQSAttribute takes the key from the message attribute of the name, as
// [SQSSendingOf] sets it, and the tenant from the attribute that tenantAttribute
// names, which may be [idem.NoTenant] instead. Attributes must be of type String or
// Number and not empty; anything else is an error that matches [idem.ErrKeyInvalid]. The key
// survives a redrive from a dead-letter queue, and a producer that sends the
// message twice. With [idem.NoTenant] a message that names a tenant in
// [SQSTenantAttribute] is an error too, here and in the functions below. An empty name
// panics.
func SQSAttribute(tenantAttribute, name string) SQSKeyFunc {
	if name == "" {
		panic(&idem.ConfigError{What: "idemlambda.SQSAttribute", Problem: "the attribute's name is empty: idemlambda.SQSKeyAttribute is one"})
	}
	return withSQSTenant("SQSAttribute", tenantAttribute, func(m *events.SQSMessage) (string, error) { return sqsAttribute(m, name) })
}

// SQSPointer takes tenant and key from the body by JSON pointer; all is as with
// [Pointer]. It suits messages that bear an identity of their own, such as an
// order's id, and reaches into the envelopes of other services:
//
//	SNS, without raw delivery   "/MessageId", the same in every delivery of a publication
//	EventBridge                 "/id", the same in every delivery of an event,
//	                            or a member of "/detail"
//	S3                          "/Records/0/eventName", "/Records/0/s3/bucket/name",
//	                            "/Records/0/s3/object/key", "/Records/0/s3/object/sequencer"
//
// What the service puts anew around the same message must be no part of the comparison,
// or a repeat is a reused key: a signature, which changes with the service's certificate,
// or the id of a request. Say so with [SQSOptions].Select:
//
//	SNS          Without: []string{"/SignatureVersion", "/Signature", "/SigningCertURL", "/UnsubscribeURL"}
//	EventBridge  Only: []string{"/detail"}
//	S3           Only: []string{"/Records/0/eventName", "/Records/0/s3/bucket", "/Records/0/s3/object"}
//
// A producer that publishes twice gets two ids from SNS and EventBridge; only a
// value of its own tells that they are one. SNS's Message is a string, which no
// pointer reaches into: with raw message delivery the body is the message, and SNS's
// message attributes are the message's, for [SQSAttribute].
func SQSPointer(tenantPointer string, values ...string) SQSKeyFunc {
	inBody := pointersInto("body", "idemlambda.SQSPointer", tenantPointer, values)
	return func(ctx context.Context, m *events.SQSMessage) (string, string, error) {
		if tenantPointer == idem.NoTenant {
			if err := ignoresTenant(m); err != nil {
				return "", "", err
			}
		}
		return inBody(ctx, json.RawMessage(m.Body))
	}
}

// SQSDeduplicationID takes the key from a FIFO queue's deduplication id, and the
// tenant from the message attribute that tenantAttribute names, which may be
// [idem.NoTenant] instead. The queue itself drops repeats for five minutes only; with
// this key the id holds for the operation's retention. With content-based
// deduplication the id is a digest of the body: two messages that are meant to be two,
// but look the same, are one then.
//
// The id counts within its queue and message group, as it does where the queue's
// deduplication scope is the group
// (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/high-throughput-fifo.html):
// the key is the queue's ARN, the group and the id. What a function also gets from the
// queue's dead-letter queue has another key there; redriven, it has its own again.
func SQSDeduplicationID(tenantAttribute string) SQSKeyFunc {
	return withSQSTenant("SQSDeduplicationID", tenantAttribute, func(m *events.SQSMessage) (string, error) {
		id := m.Attributes["MessageDeduplicationId"]
		if id == "" {
			return "", fmt.Errorf("%w: the message has no deduplication id: only those of FIFO queues do", idem.ErrKeyInvalid)
		}
		_, value, err := parts("message", [2]string{"eventSourceARN", m.EventSourceARN},
			[2]string{sqsGroup, m.Attributes[sqsGroup]}, [2]string{"MessageDeduplicationId", id})
		return value, err
	})
}

// SQSMessageID takes the key from the id that SQS gave the message, and the tenant
// from the message attribute that tenantAttribute names, which may be
// [idem.NoTenant] instead. It is the last resort: the id is the same in every delivery, but a redrive from
// a dead-letter queue gives the message a new one, and so does a producer that
// sends it again after a time-out. In both cases the handler runs again.
func SQSMessageID(tenantAttribute string) SQSKeyFunc {
	return withSQSTenant("SQSMessageID", tenantAttribute, func(m *events.SQSMessage) (string, error) {
		if m.MessageId == "" {
			return "", fmt.Errorf("%w: the message has no id", idem.ErrKeyInvalid)
		}
		return m.MessageId, nil
	})
}

func withSQSTenant(what, tenantAttribute string, value func(*events.SQSMessage) (string, error)) SQSKeyFunc {
	if tenantAttribute == "" {
		panic(&idem.ConfigError{What: "idemlambda." + what, Problem: "the tenant is empty: " +
			"name the message attribute that holds it, such as idemlambda.SQSTenantAttribute, or say idem.NoTenant"})
	}
	return func(_ context.Context, m *events.SQSMessage) (string, string, error) {
		t := idem.NoTenant
		if tenantAttribute == idem.NoTenant {
			if err := ignoresTenant(m); err != nil {
				return "", "", err
			}
		} else {
			var err error
			if t, err = sqsAttribute(m, tenantAttribute); err != nil {
				return "", "", tenantNotFound("idemlambda."+what, "attribute", err)
			}
			if t == idem.NoTenant {
				return "", "", fmt.Errorf("%w: the message attribute %q cannot be used as a tenant", idem.ErrKeyInvalid, tenantAttribute)
			}
		}
		v, err := value(m)
		return t, v, err
	}
}

// ignoresTenant refuses a message of a tenant where the key has none: another tenant's
// message with the same value would be taken for its repeat.
func ignoresTenant(m *events.SQSMessage) error {
	if _, ok := m.MessageAttributes[SQSTenantAttribute]; !ok {
		return nil
	}
	return fmt.Errorf("%w: the message names a tenant in its attribute %q, and the key function has idem.NoTenant: "+
		"give it idemlambda.SQSTenantAttribute, or a pointer to the tenant", idem.ErrKeyInvalid, SQSTenantAttribute)
}

func sqsAttribute(m *events.SQSMessage, name string) (string, error) {
	a, ok := m.MessageAttributes[name]
	switch {
	case !ok:
		return "", fmt.Errorf("%w: the message has no attribute %q", idem.ErrKeyInvalid, name)
	case a.StringValue == nil:
		return "", fmt.Errorf("%w: the message attribute %q is of type %s: send it as String", idem.ErrKeyInvalid, name, a.DataType)
	case *a.StringValue == "":
		return "", fmt.Errorf("%w: the message attribute %q is empty", idem.ErrKeyInvalid, name)
	}
	return *a.StringValue, nil
}
