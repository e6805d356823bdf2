// Package sqssender sends outbox messages to an Amazon SQS queue.
//
// A message's body is the queue's message body, in Base64 if it is not text. Its id,
// type, content type and attributes are message attributes ([outbox.AttributeID]
// and so on, and the message's own names).
//
// In a FIFO queue (a URL that ends with ".fifo") the message group is the ordering
// key, or the message id if there is none. The deduplication id is the message id: SQS
// drops repeats within 5 minutes. Later repeats, and all repeats in a standard queue, reach
// the consumer, which recognises them by the id.
//
// In a standard queue the message group is [outbox.Message.TenantGroup], with which the
// queue is a fair queue: where one tenant has a backlog, the messages of the others do not
// wait behind it. It gives no order. Messages without a tenant have no group, and SQS takes
// each for a tenant's own. AWS charges more for messages with a group. See
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
// and https://aws.amazon.com/sqs/pricing/.
//
// It needs sqs:SendMessage on the queue, and for an encrypted queue kms:Decrypt and
// kms:GenerateDataKey on the key.
package sqssender

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/outbox/internal/awsbatch"
)

var service = awsbatch.Service{
	Name: "sqs", Destination: "queue",
	Final: []string{
		"InvalidMessageContents", "InvalidParameterValue", "InvalidAttributeName", "InvalidAttributeValue",
		"BatchRequestTooLong",
	},
}

// Client has the methods of *sqs.Client that a sender calls. The client may retry.
type Client interface {
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput,
		...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
}

// Sender sends to one queue. Make it with [New].
type Sender struct {
	client Client
	url    string
	fifo   bool
}

var _ outbox.Sender = (*Sender)(nil)

// New returns a sender to the queue with that URL. It makes no call.
func New(client Client, queueURL string) (*Sender, error) {
	if c, ok := client.(*sqs.Client); client == nil || ok && c == nil {
		return nil, errors.New("sqssender: the client is nil: pass sqs.NewFromConfig(cfg)")
	}
	if !strings.HasPrefix(queueURL, "https://") && !strings.HasPrefix(queueURL, "http://") {
		return nil, fmt.Errorf("sqssender: %q is not a queue URL: use one such "+
			"as https://sqs.eu-central-1.amazonaws.com/111122223333/orders", queueURL)
	}
	return &Sender{client: client, url: queueURL, fifo: strings.HasSuffix(queueURL, ".fifo")}, nil
}

// Send implements [outbox.Sender]: one SendMessageBatch for every 10 messages or
// 256 KB. [outbox.Sent.ID] is the MessageId, which consumers get with the message.
func (s *Sender) Send(ctx context.Context, messages []outbox.Message) []outbox.Sent {
	return outbox.InBatches(ctx, messages, awsbatch.Limits, awsbatch.Size, s.send)
}

func (s *Sender) send(ctx context.Context, batch []outbox.Message) ([]outbox.Sent, error) {
	in := &sqs.SendMessageBatchInput{QueueUrl: &s.url}
	for i := range batch {
		m := &batch[i]
		body, _ := m.Text()
		entry := types.SendMessageBatchRequestEntry{
			Id: awsbatch.ID(i), MessageBody: &body,
			MessageAttributes: awsbatch.Attributes(m, func(dataType, text *string) types.MessageAttributeValue {
				return types.MessageAttributeValue{DataType: dataType, StringValue: text}
			}),
		}
		switch {
		case s.fifo:
			entry.MessageDeduplicationId, entry.MessageGroupId = &m.ID, awsbatch.Group(m)
		case m.TenantGroup != "":
			entry.MessageGroupId = &m.TenantGroup
		}
		in.Entries = append(in.Entries, entry)
	}
	out, err := s.client.SendMessageBatch(ctx, in)
	if err != nil {
		return nil, service.RequestError(err)
	}
	var replies []awsbatch.Reply
	for _, r := range out.Successful {
		replies = append(replies, awsbatch.Taken(r.Id, r.MessageId))
	}
	for _, r := range out.Failed {
		replies = append(replies, awsbatch.Failed(r.Id, r.Code, r.Message, r.SenderFault))
	}
	return service.Sent(len(batch), replies), nil
}
