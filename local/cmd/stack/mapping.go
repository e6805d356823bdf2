package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
)

const (
	ordersQueue     = "orders"
	statementsQueue = "statements"
	// eventsQueue gets what the orders function tells others.
	eventsQueue = "order-events"
	// queueVisibility is six times the function's time-out, as Lambda's guide
	// advises.
	queueVisibility = 6 * functionTimeout
	// maxReceives is the least that it advises.
	maxReceives = 5
)

// mapped is a queue whose messages a function gets, batch by batch.
type mapped struct {
	queue.Queue
	batch     int
	delivered *deliveries
}

// createQueue makes a function's queue and its dead-letter queue.
func createQueue(ctx context.Context, endpoint, name string, batch int) (mapped, error) {
	q, err := queue.Create(ctx, queue.NewClient(endpoint), queue.Spec{
		Name: name, MaxReceives: maxReceives, Attributes: map[types.QueueAttributeName]string{
			types.QueueAttributeNameVisibilityTimeout: seconds(queueVisibility),
		},
	})
	return mapped{q, batch, &deliveries{}}, err
}

// settings are the queue's, as the infrastructure sets them for the function. The function checks
// them when it starts.
func (q mapped) settings(op idem.Operation) []string {
	return []string{
		schema.EnvFunctionTimeout + "=" + seconds(functionTimeout), schema.EnvQueueVisibility + "=" + seconds(queueVisibility),
		schema.EnvQueueBatchSize + "=" + strconv.Itoa(q.batch), schema.EnvQueueBatchWindow + "=0",
		schema.EnvQueueMaxReceives + "=" + strconv.Itoa(maxReceives), schema.EnvQueueRepeat + "=" + op.Repeat.String(),
	}
}

// deliveries are the latest of the event source mapping between a queue and its function.
type deliveries struct {
	mu     sync.Mutex
	latest []queuepoller.Delivery
}

// keptDeliveries bounds the memory of a stack that runs for days; the tour has a few.
const keptDeliveries = 1000

func (s *stack) startMapping(ctx context.Context, q mapped, function string) error {
	poller, err := queuepoller.Start(ctx, q.Client, q.URL, s.pools[function], &queuepoller.Options{
		BatchSize: q.batch, MaxConcurrency: maxInstances, ReportBatchItemFailures: true, FunctionTimeout: functionTimeout,
		Delivered: q.delivered.note,
		Trouble:   func(err error) { fmt.Fprintf(s.logs, "queue %v\n", err) },
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
func (q mapped) redeliver(ctx context.Context, text string) error {
	all := q.delivered.of(text)
	_, err := q.Client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &q.URL, ReceiptHandle: messageWith(all[len(all)-1], text).ReceiptHandle, VisibilityTimeout: 0,
	})
	return err
}
