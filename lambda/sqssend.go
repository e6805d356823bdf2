package idemlambda

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

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
			return SQSAttributes{}, fmt.Errorf("%w: the attribute %q has control characters or invalid UTF-8, which SQS does not accept: encode it first",
				idem.ErrKeyInvalid, name)
		}
	}
	sum := sha256.Sum256([]byte(key.ID()))
	s.DeduplicationID = hex.EncodeToString(sum[:])
	return s, nil
}

func isXMLText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}
