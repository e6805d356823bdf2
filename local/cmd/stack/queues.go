package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
)

const (
	// queueVisibility is six times the function's time-out, as Lambda's guide
	// advises.
	queueVisibility = 6 * functionTimeout
	// maxReceives is the least that it advises.
	maxReceives = 5
	// keptDeliveries bounds the memory of a stack that runs for days; the tour has a few.
	keptDeliveries = 1000
)

// mapping is an event source mapping: a queue whose messages a function gets, batch by batch.
type mapping struct {
	queue.Queue
	batch int

	mu     sync.Mutex
	latest []queuepoller.Delivery
}

func (s *stack) createQueues(ctx context.Context) (err error) {
	client := queue.NewClient(s.sqs.Endpoint())
	for name, m := range map[string]*mapping{"orders": s.orders, "statements": s.statements} {
		m.Queue, err = queue.Create(ctx, client, queue.Spec{
			Name: name, MaxReceives: maxReceives,
			Attributes: map[types.QueueAttributeName]string{types.QueueAttributeNameVisibilityTimeout: seconds(queueVisibility)},
		})
		if err != nil {
			return err
		}
	}
	if s.events, err = queue.Create(ctx, client, queue.Spec{Name: "order-events"}); err != nil {
		return err
	}
	s.escalations, err = queue.Create(ctx, client, queue.Spec{Name: "escalations"})
	return err
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// settings are the queue's, as the infrastructure sets them for the function. The function checks
// them when it starts.
func (m *mapping) settings(op idem.Operation) []string {
	return []string{
		schema.EnvFunctionTimeout + "=" + seconds(functionTimeout),
		schema.EnvQueueBatchSize + "=" + strconv.Itoa(m.batch),
		schema.EnvQueueRepeat + "=" + op.Repeat.String(),
	}
}

func (s *stack) startMapping(ctx context.Context, m *mapping, function queuepoller.Function) error {
	poller, err := queuepoller.Start(ctx, m.Client, m.URL, function, &queuepoller.Options{
		BatchSize: m.batch, MaxConcurrency: maxInstances, FunctionTimeout: functionTimeout,
		Delivered: m.note,
		Trouble:   func(err error) { fmt.Fprintln(s.logs, err) },
	})
	if err == nil {
		s.onClose(poller.Close)
	}
	return err
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
		QueueUrl: &m.URL, ReceiptHandle: last.Messages[messageWith(last, text)].ReceiptHandle, VisibilityTimeout: 0,
	})
	return err
}
