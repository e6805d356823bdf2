package view

import (
	"time"

	"github.com/idem-go/idempotency/idem/outbox"
)

// Message is what operators may see of a message of the outbox. It says nothing of the body but its
// size.
type Message struct {
	ID          string       `json:"id"`
	Record      string       `json:"record"`
	State       outbox.State `json:"state"`
	Destination string       `json:"destination"`
	OrderingKey string       `json:"ordering_key,omitempty"`
	Type        string       `json:"type,omitempty"`
	Created     time.Time    `json:"created"`
	Tries       int          `json:"tries"`
	Reason      string       `json:"reason,omitempty"`
	// SentID is the service's id of the send that was noted at SentAt. A message that is sent again keeps
	// the former until the next note.
	SentID     string    `json:"sent_id,omitempty"`
	SentAt     time.Time `json:"sent_at,omitzero"`
	Size       int       `json:"size,omitempty"` // 0 if the body was not read
	Unreadable string    `json:"unreadable,omitempty"`
}

// MessageOf returns what may be shown of a message.
func MessageOf(e *outbox.Entry) Message {
	m := Message{
		ID: e.ID, Record: e.Record, State: e.State, Destination: e.Destination, OrderingKey: e.OrderingKey, Type: e.Type,
		Created: e.Created, Tries: e.Tries, Reason: e.Reason, SentID: e.SentID, SentAt: e.SentAt, Size: len(e.Body),
	}
	if e.Unreadable != nil {
		m.State, m.Unreadable = "unreadable", e.Unreadable.Error()
	}
	return m
}

// Text says where the message stands, without the time of its send.
func (m Message) Text() string {
	switch {
	case m.Unreadable != "":
		return m.Unreadable
	case m.State == outbox.Dead:
		return "a dead letter, because: " + m.Reason
	case m.State == outbox.Dispatched:
		return "sent"
	case m.Tries > 0:
		return "waits for another try, because: " + m.Reason
	}
	return "waits to be sent"
}
