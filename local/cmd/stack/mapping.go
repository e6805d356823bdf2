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

// deliveries are what the event source mapping between the orders' queue and function has
// delivered of messages that the tour watches.
type deliveries struct {
	mu      sync.Mutex
	watched map[string][]queuepoller.Delivery // by a text in the message's body
}

func (s *stack) startMapping(ctx context.Context) error {
	s.delivered = &deliveries{watched: map[string][]queuepoller.Delivery{}}
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

// watch follows the messages whose bodies bear the text.
func (d *deliveries) watch(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched[text] = nil
}

// of lists the deliveries of the messages that are watched by the text, so far.
func (d *deliveries) of(text string) []queuepoller.Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.watched[text])
}

func (d *deliveries) note(one queuepoller.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for text := range d.watched {
		if messageWith(one, text) != nil {
			d.watched[text] = append(d.watched[text], one)
		}
	}
}

func messageWith(d queuepoller.Delivery, text string) *types.Message {
	at := slices.IndexFunc(d.Messages, func(m types.Message) bool { return strings.Contains(aws.ToString(m.Body), text) })
	if at < 0 {
		return nil
	}
	return &d.Messages[at]
}

// redeliver makes the watched message that was delivered last visible, as the end of its
// visibility time-out would.
func (s *stack) redeliver(ctx context.Context, text string) error {
	all := s.delivered.of(text)
	_, err := s.queue.Client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &s.queue.URL, ReceiptHandle: messageWith(all[len(all)-1], text).ReceiptHandle, VisibilityTimeout: 0,
	})
	return err
}
