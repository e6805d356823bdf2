// Package awsbatch has the code that the senders to AWS services share: the size of a
// batch's messages, and what the service's reply means for each of them.
package awsbatch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/ptr"

	"github.com/idem-go/idempotency/idem/outbox"
)

// Limits of a request. SQS now accepts 1 MiB, and EventBridge more than 256 KB in most
// regions; these limits suit every queue, topic, bus and server.
var Limits = outbox.Limits{Count: 10, Bytes: 256 << 10}

// Service takes messages in batches.
type Service struct {
	// Name begins its errors.
	Name string
	// Final are the codes that are about the message, and not about the destination, its permissions
	// or its load, without namespace and without "Exception".
	Final []string
	// Destination is the word for the destination in the service's error texts, in lower case. An error
	// whose text has it says nothing about the messages: the destination can be corrected.
	Destination string
}

// Reply is a service's reply to one message of a batch.
type Reply struct {
	// ID is the message's, see [ID].
	ID string
	// SentID is the service's id of a message that it has accepted.
	SentID string
	// Code and Message are the service's error. Without a code it has accepted the message.
	Code, Message string
	// SenderFault says that the same request would fail again.
	SenderFault bool
}

// ID is the id of the n-th message of a batch, unique in its request.
func ID(n int) *string { return new(strconv.Itoa(n)) }

// RequestError is the error of a request that failed as a whole.
func (s Service) RequestError(err error) error {
	err = fmt.Errorf("%s: %w", s.Name, err)
	var api smithy.APIError
	if !errors.As(err, &api) || !s.rejects(api.ErrorCode(), api.ErrorMessage()) {
		return err
	}
	return outbox.Reject(err)
}

// Sent returns what became of each of n messages. Any of the replies may be missing.
func (s Service) Sent(n int, replies []Reply) []outbox.Sent {
	all := make([]outbox.Sent, n)
	for i := range all {
		all[i].Err = fmt.Errorf("%s: the reply says nothing about the message", s.Name)
	}
	for _, r := range replies {
		i, err := strconv.Atoi(r.ID)
		if err != nil || i < 0 || i >= n {
			continue
		}
		all[i] = outbox.Sent{ID: r.SentID}
		if r.Code != "" {
			all[i].Err = fmt.Errorf("%s: %s: %s", s.Name, r.Code, r.Message)
			if r.SenderFault && s.rejects(r.Code, r.Message) {
				all[i].Err = outbox.Reject(all[i].Err)
			}
		}
	}
	return all
}

// rejects reports whether an error is about the message.
func (s Service) rejects(code, text string) bool {
	code = strings.TrimSuffix(code[strings.LastIndexByte(code, '.')+1:], "Exception")
	return slices.Contains(s.Final, code) && !strings.Contains(strings.ToLower(text), s.Destination)
}

// Taken is the reply to a message that the service has taken.
func Taken(id, sentID *string) Reply {
	return Reply{ID: ptr.ToString(id), SentID: ptr.ToString(sentID)}
}

// Failed is the reply to a message that the service has not taken.
func Failed(id, code, message *string, senderFault bool) Reply {
	return Reply{
		ID: ptr.ToString(id), Code: cmp.Or(ptr.ToString(code), "no code"), Message: ptr.ToString(message),
		SenderFault: senderFault,
	}
}

// Attributes are the message attributes of SQS and SNS: each service has a type of its own
// for their values.
func Attributes[V any](m *outbox.Message, value func(dataType, text *string) V) map[string]V {
	all, dataType := map[string]V{}, "String"
	for name, text := range m.Tags() {
		all[name] = value(&dataType, &text)
	}
	return all
}

// Size is the size of a message that SQS and SNS count: body, and names, types and values
// of attributes.
func Size(m *outbox.Message) int {
	body, _ := m.Text()
	n := len(body)
	for name, value := range m.Tags() {
		n += len(name) + len("String") + len(value)
	}
	return n
}

// Group is the message group in FIFO queues and topics: the ordering key, or the
// message's id if there is none.
func Group(m *outbox.Message) *string { return new(cmp.Or(m.OrderingKey, m.ID)) }
