package outbox

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Attributes that senders add to a message if the service has attributes.
const (
	AttributeID          = "idem-message-id"
	AttributeType        = "idem-type"
	AttributeContentType = "idem-content-type"
	// AttributeEncoding is "base64" if the body was not text and is sent as such.
	AttributeEncoding = "idem-encoding"
)

// Sender sends messages to one queue, topic or bus. It is safe for concurrent use.
type Sender interface {
	// Send tries to send each of the messages once and returns what became of each, in
	// their order. It returns soon after the context has ended.
	//
	// No two of the messages have the same ordering key. A sender makes as many
	// requests as the service's limits need.
	Send(ctx context.Context, messages []Message) []Sent
}

// Sent is what became of a message that a [Sender] tried to send. The zero value is a message
// that a service without ids has accepted.
type Sent struct {
	// ID is the id that the service gave to the message, such as SQS's MessageId. Operators search
	// for the message by it. Empty if the service gives none. The store keeps its first
	// [MaxSentID] bytes.
	ID string
	// Err is nil if the service has accepted the message. An error that matches [ErrRejected] says
	// that it will never accept this message. One that matches [ErrNotSent] says that no request
	// with the message was made. After any other error the message may or may not have been
	// accepted, and is worth another try.
	Err error
}

// MaxSentID is how many bytes of [Sent.ID] are kept. The ids of SQS, SNS and EventBridge have 36.
const MaxSentID = 256

// ErrNotSent says that a message was not sent in this call, because there was no time for
// it. It does not count as a try.
var ErrNotSent = errors.New("outbox: the message was not sent in this call")

// ErrRejected says that the destination will never accept the message.
var ErrRejected = errors.New("outbox: the destination rejects the message")

// Reject makes an error match [ErrRejected].
func Reject(err error) error {
	return fmt.Errorf("%w: %w", ErrRejected, err)
}

// Text is the body for a service that accepts only text: unchanged, or in Base64 if encoded
// is true.
func (m *Message) Text() (body string, encoded bool) {
	if s := string(m.Body); isText(s) {
		return s, false
	}
	return base64.StdEncoding.EncodeToString(m.Body), true
}

// Tags are the message's attributes and those that senders add.
func (m *Message) Tags() map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, m.Attributes)
	tags[AttributeID] = m.ID
	if m.Type != "" {
		tags[AttributeType] = m.Type
	}
	if m.ContentType != "" {
		tags[AttributeContentType] = m.ContentType
	}
	if _, encoded := m.Text(); encoded {
		tags[AttributeEncoding] = "base64"
	}
	return tags
}

// Limits of a service for one request.
type Limits struct {
	// Count of messages, and Bytes of all of them together.
	Count, Bytes int
}

// InBatches sends messages in requests, for a [Sender]. It keeps their order, puts as many
// into a request as the limits allow, and sends one request after the other. send makes
// one request. It returns one [Sent] for each message, or an error for the whole request,
// which every message then gets. If a request of several messages is rejected as a whole
// ([ErrRejected]), each of them is sent in a request of its own, so that no message fails
// because of another. When the context has ended, no more requests are made, and the
// remaining messages get [ErrNotSent]. A message above the limit is sent in a request of
// its own, which the service may refuse.
func InBatches(ctx context.Context, messages []Message, limits Limits, size func(*Message) int,
	send func(context.Context, []Message) ([]Sent, error),
) []Sent {
	all := make([]Sent, 0, len(messages))
	for len(messages) > 0 {
		n, bytes := 0, 0
		for n < len(messages) && n < limits.Count {
			if bytes += size(&messages[n]); n > 0 && bytes > limits.Bytes {
				break
			}
			n++
		}
		all = append(all, sendBatch(ctx, messages[:n], send)...)
		messages = messages[n:]
	}
	return all
}

func sendBatch(ctx context.Context, batch []Message, send func(context.Context, []Message) ([]Sent, error)) []Sent {
	if err := ctx.Err(); err != nil {
		return forEach(batch, fmt.Errorf("%w: %w", ErrNotSent, err))
	}
	sent, err := send(ctx, batch)
	switch {
	case err == nil && len(sent) != len(batch):
		return forEach(batch, errors.New("outbox: the sender did not return one Sent for each message: correct the sender"))
	case err == nil:
		return sent
	case len(batch) > 1 && errors.Is(err, ErrRejected):
		sent = nil
		for i := range batch {
			sent = append(sent, sendBatch(ctx, batch[i:i+1], send)...)
		}
		return sent
	}
	return forEach(batch, err)
}

// forEach is the error once for each message.
func forEach(messages []Message, err error) []Sent {
	return slices.Repeat([]Sent{{Err: err}}, len(messages))
}
