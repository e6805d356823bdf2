package idemlambda

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// SQSKeyFunc finds tenant and value of the key in a message: [SQSAttribute], [SQSPointer],
// [SQSDeduplicationID], [SQSMessageID], or a function of yours. It returns
// [idem.SingleTenant] as the tenant if there is none. It must not change or keep
// the message and must be safe for concurrent use. After an error the message is
// redelivered, and nothing is executed.
type SQSKeyFunc = RecordKeyFunc[events.SQSMessage]

// SQSAttribute takes the key from the message attribute with this name, as
// [SQSAttributesFor] sets it, and the tenant from the attribute tenantAttribute.
// tenantAttribute may be [idem.SingleTenant]. Attributes must be of type String or Number and
// not empty; anything else is an error that matches [idem.ErrKeyInvalid]. The key stays
// the same after a redrive from a dead-letter queue, and if a producer sends the message
// twice. With [idem.SingleTenant] a message that names a tenant in [SQSTenantAttribute] is an
// error too, here and in the functions below. An empty name panics.
func SQSAttribute(tenantAttribute, name string) SQSKeyFunc {
	if name == "" {
		panic(&idem.ConfigError{What: "idemlambda.SQSAttribute",
			Problem: "the attribute's name is empty: idemlambda.SQSKeyAttribute is one"})
	}
	return withSQSTenant("SQSAttribute", tenantAttribute,
		func(m *events.SQSMessage) (string, error) { return sqsAttribute(m, name) })
}

// SQSPointer takes tenant and key from the body by JSON pointer, by the rules of
// [Pointer]. It suits messages that have an identity of their own, such as an order's id.
// It also reads the envelopes of other services:
//
//	SNS, without raw delivery   "/MessageId", the same in every delivery of a publication
//	EventBridge                 "/id", the same in every delivery of an event,
//	                            or a member of "/detail"
//	S3                          "/Records/0/eventName", "/Records/0/s3/bucket/name",
//	                            "/Records/0/s3/object/key", "/Records/0/s3/object/sequencer"
//
// Some parts of an envelope differ each time the service sends the same message: a
// signature, which changes with the service's certificate, or the id of a request. They
// must not be compared, or a repeat counts as a reused key. Use [SQSOptions].Select:
//
//	SNS          Without: []string{"/SignatureVersion", "/Signature", "/SigningCertURL", "/UnsubscribeURL"}
//	EventBridge  Only: []string{"/detail"}
//	S3           Only: []string{"/Records/0/eventName", "/Records/0/s3/bucket", "/Records/0/s3/object"}
//
// A producer that publishes twice gets two ids from SNS and EventBridge; only a value
// that the producer sets tells that they are one. SNS's Message is a string, and a pointer
// cannot reach into it. With raw message delivery the body is the message, and SNS's
// message attributes are the SQS message's, for [SQSAttribute].
func SQSPointer(tenantPointer string, values ...string) SQSKeyFunc {
	inBody := pointersInto("body", "idemlambda.SQSPointer", tenantPointer, values)
	return func(ctx context.Context, m *events.SQSMessage) (string, string, error) {
		if err := ignoresTenant(tenantPointer, m); err != nil {
			return "", "", err
		}
		return inBody(ctx, json.RawMessage(m.Body))
	}
}

// SQSDeduplicationID takes the key from a FIFO queue's deduplication id, and the
// tenant from the message attribute tenantAttribute, which may be [idem.SingleTenant]. The
// queue itself drops repeats for only five minutes; with this key the id holds for the
// operation's retention. With content-based deduplication the id is a digest of the body:
// two different messages with the same body then count as one.
//
// The id counts within its queue and message group, as it does in a queue whose
// deduplication scope is the group
// (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/high-throughput-fifo.html):
// the key is the queue's ARN, the group and the id. If the function also consumes the
// dead-letter queue, a message has another key there, and its first key again after a
// redrive.
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
// from the message attribute tenantAttribute, which may be [idem.SingleTenant]. It is the last
// resort. The id is the same in every delivery, but the message gets a new id by a redrive
// from a dead-letter queue, and if its producer sends it again after a time-out. In both
// cases the handler runs again.
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
			"name the message attribute that holds it, such as idemlambda.SQSTenantAttribute, or say idem.SingleTenant"})
	}
	return func(_ context.Context, m *events.SQSMessage) (string, string, error) {
		if err := ignoresTenant(tenantAttribute, m); err != nil {
			return "", "", err
		}
		t, err := tenantBy(what, "attribute", tenantAttribute, m, sqsAttribute)
		if err != nil {
			return "", "", err
		}
		v, err := value(m)
		return t, v, err
	}
}

// ignoresTenant refuses a message that names a tenant if the key has none: another
// tenant's message with the same value would be taken for its repeat.
func ignoresTenant(tenant string, m *events.SQSMessage) error {
	if _, ok := m.MessageAttributes[SQSTenantAttribute]; !ok || tenant != idem.SingleTenant {
		return nil
	}
	return fmt.Errorf("%w: the message names a tenant in its attribute %q, and the key function has idem.SingleTenant: "+
		"give it idemlambda.SQSTenantAttribute, or a pointer to the tenant", idem.ErrKeyInvalid, SQSTenantAttribute)
}

func sqsAttribute(m *events.SQSMessage, name string) (string, error) {
	a, ok := m.MessageAttributes[name]
	switch {
	case !ok:
		return "", fmt.Errorf("%w: the message has no attribute %q", idem.ErrKeyInvalid, name)
	case a.StringValue == nil:
		return "", fmt.Errorf("%w: the message attribute %q is of type %s: send it as String",
			idem.ErrKeyInvalid, name, a.DataType)
	case *a.StringValue == "":
		return "", fmt.Errorf("%w: the message attribute %q is empty", idem.ErrKeyInvalid, name)
	}
	return *a.StringValue, nil
}

// Names of the message attributes that [SQSAttributesFor] sets, for [SQSAttribute].
const (
	SQSKeyAttribute    = "idempotency-key"
	SQSTenantAttribute = "idempotency-tenant"
)

// SQSAttributes holds what a producer sets on a message, in plain strings: this package
// imports no SDK.
type SQSAttributes struct {
	// Attributes are message attributes of type String, by name.
	Attributes map[string]string
	// GroupID is for standard queues, as the MessageGroupId: the queue is then fair to
	// tenants, and where one of them has a backlog, the messages of the others do not wait
	// behind it
	// (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html).
	// AWS charges more for messages with a group. It is a digest of the tenant, the same as in
	// messages of package sqssender, and empty for [idem.SingleTenant]: set it only if it is
	// not. In a FIFO queue a group is an order: take what has to be in order there.
	GroupID string
	// DeduplicationID is for FIFO queues; a standard queue refuses it. It is a digest
	// of tenant, operation and value. In a queue that several operations or tenants
	// share, one's message is therefore not dropped because of another's.
	DeduplicationID string
}

// SQSAttributesFor returns what a producer sets on a message so that its consumer finds the
// same key, however often the message is sent. The consumer uses
// SQSAttribute(SQSTenantAttribute, SQSKeyAttribute), or
// SQSAttribute(idem.SingleTenant, SQSKeyAttribute) if the tenant is [idem.SingleTenant]. Derive
// the value from the message's subject, or make it once and keep it with the subject.
// [idem.Operation.Key] must accept tenant and value, and both must be text that SQS
// accepts (https://www.w3.org/TR/REC-xml/#charsets); otherwise the error matches
// [idem.ErrKeyInvalid].
func SQSAttributesFor(op idem.Operation, tenant, value string) (SQSAttributes, error) {
	key := op.Key(tenant, value)
	if err := key.Err(); err != nil {
		return SQSAttributes{}, err
	}
	s := SQSAttributes{Attributes: map[string]string{SQSKeyAttribute: value}, GroupID: protocol.TenantGroup(key.ID())}
	if tenant != idem.SingleTenant {
		s.Attributes[SQSTenantAttribute] = tenant
	}
	for name, text := range s.Attributes {
		if !isXMLText(text) {
			return SQSAttributes{}, fmt.Errorf("%w: the attribute %q has control characters or invalid UTF-8, which SQS "+
				"does not accept: encode it first",
				idem.ErrKeyInvalid, name)
		}
	}
	sum := sha256.Sum256([]byte(key.ID()))
	s.DeduplicationID = hex.EncodeToString(sum[:])
	return s, nil
}

func isXMLText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}
