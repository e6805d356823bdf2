package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/local/aws/queue"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
)

const (
	ordersQueue = "orders"
	// queueVisibility is six times the function's time-out, as Lambda's guide
	// advises.
	queueVisibility = 6 * functionTimeout
	// maxReceives is the least that it advises.
	maxReceives = 5
)

// createQueue makes the orders' queue and its dead-letter queue.
func createQueue(ctx context.Context, endpoint string) (queue.Queue, error) {
	return queue.Create(ctx, queue.NewClient(endpoint), queue.Spec{
		Name: ordersQueue, MaxReceives: maxReceives, Attributes: map[types.QueueAttributeName]string{
			types.QueueAttributeNameVisibilityTimeout: seconds(queueVisibility),
		},
	})
}

// deliveries are the latest of the event source mapping between the orders' queue and
// function.
type deliveries struct {
	mu     sync.Mutex
	latest []queuepoller.Delivery
}

// keptDeliveries bounds the memory of a stack that runs for days; the tour has a few.
const keptDeliveries = 1000

func (s *stack) startMapping(ctx context.Context) error {
	s.delivered = &deliveries{}
	poller, err := queuepoller.Start(ctx, s.queue.Client, s.queue.URL, s.pools[orders], &queuepoller.Options{
		MaxConcurrency: maxInstances, ReportBatchItemFailures: true, FunctionTimeout: functionTimeout,
		Observer: queuepoller.Observer{
			Delivered: s.delivered.note,
			Trouble:   func(err error) { fmt.Fprintf(page{s.logs, logQueue}, "queue %v\n", err) },
		},
	})
	if err != nil {
		return err
	}
	s.onClose(poller.Close)
	return nil
}

func (d *deliveries) note(one queuepoller.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = append(d.latest, one)
	d.latest = d.latest[max(len(d.latest)-keptDeliveries, 0):]
}

// of lists those of the messages whose bodies bear the text, so far.
func (d *deliveries) of(text string) []queuepoller.Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.latest), func(one queuepoller.Delivery) bool { return messageWith(one, text) == nil })
}

func messageWith(d queuepoller.Delivery, text string) *types.Message {
	at := slices.IndexFunc(d.Messages, func(m types.Message) bool { return strings.Contains(aws.ToString(m.Body), text) })
	if at < 0 {
		return nil
	}
	return &d.Messages[at]
}

// redeliver makes the message that was delivered last visible, as the end of its
// visibility time-out would.
func (s *stack) redeliver(ctx context.Context, text string) error {
	all := s.delivered.of(text)
	_, err := s.queue.Client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &s.queue.URL, ReceiptHandle: messageWith(all[len(all)-1], text).ReceiptHandle, VisibilityTimeout: 0,
	})
	return err
}
