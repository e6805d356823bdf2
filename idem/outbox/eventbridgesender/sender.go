// Package eventbridgesender sends outbox messages to an Amazon EventBridge event
// bus.
//
// EventBridge gives an event another id each time it is sent. The message's stable id is
// therefore in the detail:
//
//	{
//	  "id": "b9b5e83d-a14a-8a30-aea2-b06c1cafc41c",
//	  "contentType": "application/json",
//	  "attributes": {"region": "eu"},
//	  "data": {"order": 1}
//	}
//
// data is the body if that is JSON; any other body is in dataBase64. Members without
// content are left out. The detail-type is the message's type, or its destination if it has
// no type; the source is the sender's. EventBridge keeps no order.
//
// It needs events:PutEvents on the bus.
package eventbridgesender

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/outbox/internal/awsbatch"
)

var service = awsbatch.Service{
	Name: "eventbridge", Destination: "bus",
	Final: []string{"MalformedDetail", "InvalidArgument", "Validation", "ValidationError", "RequestEntityTooLarge"},
}

// Client has the methods of *eventbridge.Client that a sender calls. The client may retry.
type Client interface {
	PutEvents(context.Context, *eventbridge.PutEventsInput,
		...func(*eventbridge.Options)) (*eventbridge.PutEventsOutput, error)
}

// Sender sends to one event bus. Make it with [New].
type Sender struct {
	client      Client
	bus, source string
}

var _ outbox.Sender = (*Sender)(nil)

// New returns a sender to the event bus with this name or ARN. source is the source of its
// events, such as "com.example.orders". New makes no call.
func New(client Client, bus, source string) (*Sender, error) {
	c, ok := client.(*eventbridge.Client)
	switch {
	case client == nil || ok && c == nil:
		return nil, errors.New("eventbridgesender: the client is nil: pass eventbridge.NewFromConfig(cfg)")
	case bus == "":
		return nil, errors.New(`eventbridgesender: the bus is empty: name it, or say "default"`)
	case source == "" || len(source) > 256 || strings.HasPrefix(source, "aws."):
		return nil,
			fmt.Errorf(`eventbridgesender: source %q: use a name such as "com.example.orders"; "aws." is the services'`, source)
	}
	return &Sender{client: client, bus: bus, source: source}, nil
}

// Send implements [outbox.Sender]: one PutEvents for every 10 messages or 256 KB.
// [outbox.Sent.ID] is the EventId, which targets get as the event's id.
func (s *Sender) Send(ctx context.Context, messages []outbox.Message) []outbox.Sent {
	return outbox.InBatches(ctx, messages, awsbatch.Limits, s.size, s.send)
}

type detail struct {
	ID          string            `json:"id"`
	ContentType string            `json:"contentType,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Data        json.RawMessage   `json:"data,omitempty"`
	DataBase64  []byte            `json:"dataBase64,omitempty"`
}

// detailOf is the event's detail. It does not change numbers and white space of a JSON
// body.
func detailOf(m *outbox.Message) (string, error) {
	d := detail{ID: m.ID, ContentType: m.ContentType, Attributes: m.Attributes}
	if json.Valid(m.Body) && utf8.Valid(m.Body) {
		d.Data = m.Body
	} else {
		d.DataBase64 = m.Body
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(d)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func typeOf(m *outbox.Message) string { return cmp.Or(m.Type, m.Destination) }

func (s *Sender) send(ctx context.Context, batch []outbox.Message) ([]outbox.Sent, error) {
	in := &eventbridge.PutEventsInput{}
	for i := range batch {
		m := &batch[i]
		d, err := detailOf(m)
		if err != nil {
			return nil, outbox.Reject(fmt.Errorf("eventbridge: %w", err))
		}
		in.Entries = append(in.Entries, types.PutEventsRequestEntry{
			EventBusName: &s.bus, Source: &s.source, DetailType: aws.String(typeOf(m)), Detail: &d,
		})
	}
	out, err := s.client.PutEvents(ctx, in)
	if err != nil {
		return nil, service.RequestError(err)
	}
	var replies []awsbatch.Reply
	for i, e := range out.Entries {
		// An entry without an error and without the event's id says nothing.
		if code := aws.ToString(e.ErrorCode); code != "" || aws.ToString(e.EventId) != "" {
			replies = append(replies, awsbatch.Reply{ID: *awsbatch.ID(i), SentID: aws.ToString(e.EventId), Code: code,
				Message: aws.ToString(e.ErrorMessage), SenderFault: true})
		}
	}
	return service.Sent(len(batch), replies), nil
}

// size is the size that EventBridge counts: source, detail-type and detail.
func (s *Sender) size(m *outbox.Message) int {
	d, err := detailOf(m)
	if err != nil {
		return 0
	}
	return len(s.source) + len(typeOf(m)) + len(d)
}
