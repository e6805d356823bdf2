package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/local/aws/queuepoller"
)

// mapping is the event source mapping between the orders' queue and function. Its
// poller works through it as through an SQS client, and it interferes with
// messages that are watched: so that the tour can see a message come twice, and
// need not wait for time-outs.
type mapping struct {
	*sqs.Client
	queue string

	mu      sync.Mutex
	watched map[string]*watch // by a text in the message's body
	handles map[string]*watch // by receipt handle
}

// watch is what the tour knows of one message.
type watch struct {
	lose       int // so many acknowledgements get lost
	deliveries []queuepoller.Delivery
	handle     *string // of the latest delivery
}

func (s *stack) startMapping(ctx context.Context) error {
	s.mapping = &mapping{Client: s.queues.client, queue: s.queues.url, watched: map[string]*watch{}, handles: map[string]*watch{}}
	poller, err := queuepoller.Start(ctx, s.mapping, s.queues.url, s.pools[orders], &queuepoller.Options{
		MaxConcurrency: maxInstances, ReportBatchItemFailures: true, FunctionTimeout: functionTimeout,
		Observer: queuepoller.Observer{
			Delivered: s.mapping.delivered,
			Trouble:   func(err error) { fmt.Fprintf(page{s.logs, logQueue}, "queue %v\n", err) },
		},
	})
	if err != nil {
		return err
	}
	s.onClose(poller.Close)
	return nil
}

// watch follows the messages whose bodies bear the text. The first acknowledgements
// do not reach the queue, as many as are to be lost: SQS promises delivery at least
// once.
func (m *mapping) watch(text string, lose int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched[text] = &watch{lose: lose}
}

// deliveries of the messages that are watched by the text, so far.
func (m *mapping) deliveries(text string) []queuepoller.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]queuepoller.Delivery(nil), m.watched[text].deliveries...)
}

// again makes the watched message that was delivered last visible, as the end of
// its visibility time-out would.
func (m *mapping) again(ctx context.Context, text string) error {
	m.mu.Lock()
	handle := m.watched[text].handle
	m.mu.Unlock()
	_, err := m.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &m.queue, ReceiptHandle: handle, VisibilityTimeout: 0})
	return err
}

// delivered notes what became of watched messages.
func (m *mapping) delivered(d queuepoller.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range d.Messages {
		if w := m.watchOf(msg); w != nil {
			w.deliveries, w.handle = append(w.deliveries, d), msg.ReceiptHandle
		}
		delete(m.handles, aws.ToString(msg.ReceiptHandle))
	}
}

// ReceiveMessage notes the receipt handles of watched messages.
func (m *mapping) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out, err := m.Client.ReceiveMessage(ctx, in, o...)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range out.Messages {
		if w := m.watchOf(msg); w != nil {
			m.handles[aws.ToString(msg.ReceiptHandle)] = w
		}
	}
	return out, nil
}

func (m *mapping) watchOf(msg types.Message) *watch {
	for text, w := range m.watched {
		if strings.Contains(aws.ToString(msg.Body), text) {
			return w
		}
	}
	return nil
}

// DeleteMessageBatch loses what is to be lost, and says that all is well.
func (m *mapping) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, o ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	lost, rest := m.lose(in.Entries)
	out := &sqs.DeleteMessageBatchOutput{}
	if len(rest) > 0 {
		var err error
		if out, err = m.Client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: in.QueueUrl, Entries: rest}, o...); err != nil {
			return nil, err
		}
	}
	for _, e := range lost {
		out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

func (m *mapping) lose(entries []types.DeleteMessageBatchRequestEntry) (lost, rest []types.DeleteMessageBatchRequestEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if w := m.handles[aws.ToString(e.ReceiptHandle)]; w != nil && w.lose > 0 {
			w.lose--
			lost = append(lost, e)
		} else {
			rest = append(rest, e)
		}
	}
	return lost, rest
}
