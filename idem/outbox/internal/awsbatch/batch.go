// Package awsbatch is what the senders to AWS services have in common: how a batch's
// messages are measured, and what the service's reply means for each of them.
package awsbatch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/idem-go/idempotency/idem/outbox"
)

// Limits of a request. SQS takes 1 MiB and EventBridge more than 256 KB in most regions
// by now; these suit every queue, topic, bus and server.
var Limits = outbox.Limits{Count: 10, Bytes: 256 << 10}

// Service takes messages in batches.
type Service struct {
	// Name begins its errors.
	Name string
	// IsFinal reports whether a code is about the message, and not about the
	// destination, its permissions or its load.
	IsFinal func(code string) bool
	// Destination is how the service's error texts call the destination, in lower case.
	// A request that fails as a whole with a text about it says nothing about the
	// messages: the destination can be corrected. Empty means that none is about it.
	Destination string
}

// Reply is what a service says of one message of a batch.
type Reply struct {
	// ID is the message's, see [ID].
	ID string
	// Code and Message are the service's error. Without a code it has taken the message.
	Code, Message string
	// SenderFault says that the same request would fail again.
	SenderFault bool
}

// ID is the id of the n-th message of a batch, unique in its request.
func ID(n int) *string {
	id := strconv.Itoa(n)
	return &id
}

// RequestError is the error of a request that failed as a whole.
func (s Service) RequestError(err error) error {
	err = fmt.Errorf("%s: %w", s.Name, err)
	var api smithy.APIError
	if !errors.As(err, &api) || !s.IsFinal(api.ErrorCode()) {
		return err
	}
	if s.Destination != "" && strings.Contains(strings.ToLower(api.ErrorMessage()), s.Destination) {
		return err
	}
	return outbox.Reject(err)
}

// Errors returns one error for each of n messages, by the replies, of which any may be
// missing.
func (s Service) Errors(n int, replies []Reply) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = fmt.Errorf("%s: the reply says nothing about the message", s.Name)
	}
	for _, r := range replies {
		i, err := strconv.Atoi(r.ID)
		if err != nil || i < 0 || i >= n {
			continue
		}
		errs[i] = nil
		if r.Code != "" {
			errs[i] = fmt.Errorf("%s: %s: %s", s.Name, r.Code, r.Message)
			if r.SenderFault && s.IsFinal(r.Code) {
				errs[i] = outbox.Reject(errs[i])
			}
		}
	}
	return errs
}

// Size is what SQS and SNS count of a message: body, and names, types and values of
// attributes.
func Size(m *outbox.Message) int {
	body, _ := m.Text()
	n := len(body)
	for name, value := range m.Tags() {
		n += len(name) + len("String") + len(value)
	}
	return n
}

// Group is the message group in FIFO queues and topics: the ordering key, or the
// message's id where there is none.
func Group(m *outbox.Message) *string {
	if m.OrderingKey != "" {
		return &m.OrderingKey
	}
	return &m.ID
}
