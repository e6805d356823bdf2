package outbox

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
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
	// Send tries to send each of the messages once and returns one error for each,
	// in their order: nil for a message that the service has accepted. An error that
	// matches [ErrRejected] says that the service will never accept this message. One that
	// matches [ErrNotSent] says that no request with the message was made. After any other
	// error the message may or may not have been accepted, and is worth another try. Send
	// returns soon after the context has ended.
	//
	// No two of the messages have the same ordering key. A sender makes as many
	// requests as the service's limits need.
	Send(ctx context.Context, messages []Message) []error
}

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
	tags := make(map[string]string, len(m.Attributes)+4)
	for name, value := range m.Attributes {
		tags[name] = value
	}
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
