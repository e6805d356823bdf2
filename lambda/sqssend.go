package idemlambda

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem"
)

// Names of the message attributes that [SQSSendingOf] sets, for [SQSAttribute].
const (
	SQSKeyAttribute    = "idempotency-key"
	SQSTenantAttribute = "idempotency-tenant"
)

// SQSSending is what a producer sets on a message, in plain strings: this package
// imports no SDK.
type SQSSending struct {
	// Attributes are message attributes of type String, by name.
	Attributes map[string]string
	// DeduplicationID is for FIFO queues; a standard queue refuses it. It is a digest
	// of tenant, operation and value, so that a queue that several of them share
	// drops no message for another's sake.
	DeduplicationID string
}

// SQSSendingOf returns what a producer sets on a message so that its consumer,
// with SQSAttribute(SQSTenantAttribute, SQSKeyAttribute), or with
// SQSAttribute(idem.NoTenant, SQSKeyAttribute) where the tenant is
// [idem.NoTenant], finds the same key: however often the message is sent. The
// value must come from what the message is about, or be made once and kept with
// it. Tenant and value must be what [idem.Operation.Key] takes, and text that SQS
// takes (https://www.w3.org/TR/REC-xml/#charsets); else the error matches
// [idem.ErrKeyInvalid].
func SQSSendingOf(op idem.Operation, tenant, value string) (SQSSending, error) {
	key := op.Key(tenant, value)
	if err := key.Err(); err != nil {
		return SQSSending{}, err
	}
	s := SQSSending{Attributes: map[string]string{SQSKeyAttribute: value}}
	if tenant != idem.NoTenant {
		s.Attributes[SQSTenantAttribute] = tenant
	}
	for name, text := range s.Attributes {
		if !isXMLText(text) {
			return SQSSending{}, fmt.Errorf("%w: SQS takes no control characters and no invalid UTF-8, and the attribute %q has some: encode it first",
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
