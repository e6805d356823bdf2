package outbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a message, so that a committed message can be sent. Except for [Message.Limit]
// they are the lowest limits of the services that a message may go to.
const (
	// DefaultLimit is the size that every destination accepts, including an SNS topic
	// whose MaximumMessageSize was not raised (Amazon SNS developer guide, "Publishing
	// large messages"), and EventBridge in every region.
	DefaultLimit = 256 << 10
	// MaxLimit is the largest size that a destination accepts: SQS, an SNS topic with that
	// MaximumMessageSize, and EventBridge in regions with a raised limit. The store may
	// accept less: see dynamostore.
	MaxLimit = 1 << 20
	// MaxDestination is the longest name of a destination, in bytes.
	MaxDestination = 128
	// MaxOrderingKey is the longest ordering key: the longest group id of SQS and SNS.
	MaxOrderingKey = 128
	// MaxAttributes is the most attributes: SQS accepts 10, and the senders use four for
	// the message's id, type, content type and encoding.
	MaxAttributes = 6
	// MaxType is the longest type, in bytes: EventBridge's limit for a detail-type.
	MaxType = 128
	// maxName and maxValue bound the parts of an attribute.
	maxName = 100
	// overhead is for the parts that a sender adds: names, the id, JSON around it, a source.
	overhead       = 1 << 10
	maxContentType = 256
)

// Message is sent to another system after the transaction that publishes it has committed.
// The zero value of every field except Destination and Body is fine.
type Message struct {
	// ID is the same on every attempt of the operation and every time the message
	// is sent: a consumer recognises repeats by it. After the operation's record has
	// expired or was forgotten, another run of the same key has messages with other ids. The id is set
	// when the message is committed ([MessageID]); leave it empty.
	ID string

	// TenantGroup is the same in all messages of a tenant, and names none. It is empty where
	// the operation has no tenant. A standard SQS queue gets it as the message group, by which
	// it is fair to tenants. It is set when the message is read from the store; leave it empty.
	TenantGroup string

	// Destination names where the message goes, such as "orders". The relay knows
	// which queue, topic or bus that is. Required; letters, digits and
	// "._-", at most [MaxDestination].
	Destination string

	// OrderingKey asks for order: a message is not sent before an earlier one with the same
	// destination and ordering key. The package's comment says what is earlier. Empty means
	// no order. Visible ASCII without spaces, at most [MaxOrderingKey] characters.
	OrderingKey string

	// Type says what the message is about, such as "order.placed". On EventBridge it is the
	// detail-type, or Destination if it is empty; queues and topics get it as an attribute.
	Type string

	// ContentType of Body, such as "application/json". Queues and topics get it as
	// the attribute [AttributeContentType].
	ContentType string

	// Body is the content. Bytes that are not text are sent as Base64 to services that
	// accept only text, and [AttributeEncoding] says so. Not empty.
	Body []byte

	// Attributes are for the consumer's or the topic's filters. Names have letters, digits
	// and "._-"; the relay's own begin with "idem-". Values are not empty; at
	// most [MaxAttributes].
	Attributes map[string]string

	// Limit is how many bytes the destination accepts in a message, 2,048 to [MaxLimit].
	// Zero means [DefaultLimit]; set more if the destination accepts it, as a queue does,
	// or a topic with a larger MaximumMessageSize. Body, type, content type and attributes
	// count, and 1 KB for the parts that a sender adds. A body that is not JSON counts in
	// Base64, in which EventBridge gets it, and strings as they are written in JSON. Limit
	// is only for [Message.Check] and is not stored.
	Limit int
}

// bodySize is the length of the body in its longest form.
func (m *Message) bodySize() int {
	if json.Valid(m.Body) && isText(string(m.Body)) {
		return len(m.Body)
	}
	return base64.StdEncoding.EncodedLen(len(m.Body))
}

// stringSize is the length of a text in JSON, without the quotes around it.
func stringSize(s string) int {
	n := len(s)
	for _, r := range s {
		switch r {
		case '"', '\\', '\n', '\r', '\t':
			n++
		case '\u2028', '\u2029':
			n += len(`\u2028`) - len("\u2028")
		}
	}
	return n
}

// Check reports what is wrong with a message before it is committed, when the mistake can
// still be corrected.
func (m *Message) Check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("outbox: message for %q: %s", m.Destination, fmt.Sprintf(format, args...))
	}
	switch {
	case m.ID != "" || m.TenantGroup != "":
		return invalid("ID or TenantGroup is set: leave them empty, they are made of the record")
	case m.Destination == "":
		return fmt.Errorf("outbox: message of type %q: Destination is empty: name where it goes", m.Type)
	case len(m.Destination) > MaxDestination || !isName(m.Destination):
		return invalid("Destination may have %d letters, digits, '.', '_' and '-'", MaxDestination)
	case len(m.OrderingKey) > MaxOrderingKey || !isVisible(m.OrderingKey):
		return invalid("OrderingKey %q may have %d visible ASCII characters without spaces", m.OrderingKey, MaxOrderingKey)
	case len(m.Type) > MaxType || !isText(m.Type):
		return invalid("Type %q may have %d bytes of text", m.Type, MaxType)
	case len(m.ContentType) > maxContentType || !isText(m.ContentType):
		return invalid("ContentType %q may have %d bytes of text", m.ContentType, maxContentType)
	case len(m.Body) == 0:
		return invalid("Body is empty: queues and topics refuse a message without one")
	case len(m.Attributes) > MaxAttributes:
		return invalid("it has %d attributes and may have %d", len(m.Attributes), MaxAttributes)
	}
	limit := cmp.Or(m.Limit, DefaultLimit)
	if limit < 2*overhead || limit > MaxLimit {
		return invalid("Limit is %d: use %d to %d bytes, or zero for %d", m.Limit, 2*overhead, MaxLimit, DefaultLimit)
	}
	size := m.bodySize() + len(m.Type) + stringSize(m.ContentType)
	for name, value := range m.Attributes {
		switch {
		case name == "" || len(name) > maxName || !isName(name) || strings.Trim(name, ".") != name ||
			strings.Contains(name, ".."):
			return invalid("attribute name %q may have %d letters, digits, '_' and '-', and single dots inside", name, maxName)
		case reserved(name):
			return invalid("attribute name %q: names that begin with idem-, AWS. or Amazon. are taken", name)
		case value == "" || !isText(value):
			return invalid("attribute %q has a value that is empty or not text: encode it", name)
		}
		size += len(name) + stringSize(value)
	}
	if size > limit-overhead {
		return invalid("it has %d bytes as it is sent and may have %d: store the body and send where it is, "+
			"or set Limit if the destination takes more", size, limit-overhead)
	}
	return nil
}

// MessageID is the id of the message that a record's operation publishes under the
// name. created is when the record was created, in milliseconds. It is the same for all
// attempts of one life of the key, so every attempt gives the same id. Another life, after
// the record has expired or was forgotten, gives another id. The form is a UUID (version 8, RFC 9562).
func MessageID(record string, created time.Time, name string) string {
	u := sha256.Sum256([]byte("idem outbox 3\x00" + strconv.FormatInt(created.UnixMilli(), 10) + "\x00" +
		record + "\x00" + name))
	u[6] = u[6]&0x0f | 0x80 // version 8: vendor-specific
	u[8] = u[8]&0x3f | 0x80 // variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

func reserved(name string) bool {
	n := strings.ToLower(name)
	return strings.HasPrefix(n, "idem-") || strings.HasPrefix(n, "aws.") || strings.HasPrefix(n, "amazon.")
}

func isName(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	})
}

func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// isText reports whether a service that accepts only text accepts s: it must have only
// characters of XML 1.0, as SQS and SNS document.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\uFFFE' || r == '\uFFFF'
	})
}
