package main

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/local/aws/queuepoller"
)

// keptDeliveries bounds the memory of a stack that runs for days; the tour has a few.
const keptDeliveries = 1000

// mapping is a queue whose messages a function gets, batch by batch.
type mapping struct {
	name         string
	url, deadURL string
	Client       *sqs.Client

	mu     sync.Mutex
	latest []queuepoller.Delivery
}

// delivered notes a delivery.
func (s *stack) delivered(queue string, d queuepoller.Delivery) {
	for _, m := range []*mapping{s.orders, s.statements} {
		if m.name == queue {
			m.note(d)
		}
	}
}

func (m *mapping) note(d queuepoller.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest = append(m.latest, d)
	m.latest = m.latest[max(len(m.latest)-keptDeliveries, 0):]
}

// of lists the deliveries of the message whose body has the text, so far.
func (m *mapping) of(text string) []queuepoller.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.latest), func(d queuepoller.Delivery) bool { return messageWith(d, text) < 0 })
}

// messageWith is the index of the message whose body has the text.
func messageWith(d queuepoller.Delivery, text string) int {
	return slices.IndexFunc(d.Messages, func(m types.Message) bool { return strings.Contains(aws.ToString(m.Body), text) })
}

// redeliver makes the message that was delivered last visible, as the end of its
// visibility time-out would.
func (m *mapping) redeliver(ctx context.Context, text string) error {
	all := m.of(text)
	last := all[len(all)-1]
	_, err := m.Client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &m.url, ReceiptHandle: last.Messages[messageWith(last, text)].ReceiptHandle, VisibilityTimeout: 0,
	})
	return err
}
