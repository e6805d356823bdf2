// Package snssender sends outbox messages to an Amazon SNS topic.
//
// A message's body is the topic's message, in Base64 if it is not text. Its id, type,
// content type and attributes are message attributes ([outbox.AttributeID] and so
// on, and the message's own names), so that filter policies can use them.
//
// In a FIFO topic (an ARN that ends with ".fifo") the message group is the ordering
// key, or the message id if there is none. The deduplication id is the message id: SNS
// drops repeats within 5 minutes. Later repeats, and all repeats in a standard topic, reach
// the subscribers, who recognise them by the id.
//
// It needs sns:Publish on the topic, and for an encrypted topic kms:Decrypt and
// kms:GenerateDataKey on the key.
package snssender

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/outbox/internal/awsbatch"
)

var service = awsbatch.Service{
	Name: "sns", Destination: "topic",
	Final: []string{"InvalidParameter", "InvalidParameterValue", "ParameterValueInvalid",
		"BatchRequestTooLong", "Validation"},
}

// Client has the methods of *sns.Client that a sender calls. The client may retry.
type Client interface {
	PublishBatch(context.Context, *sns.PublishBatchInput, ...func(*sns.Options)) (*sns.PublishBatchOutput, error)
}

// Sender sends to one topic. Make it with [New].
type Sender struct {
	client Client
	arn    string
	fifo   bool
}

var _ outbox.Sender = (*Sender)(nil)

// New returns a sender to the topic with that ARN. It makes no call.
func New(client Client, topicARN string) (*Sender, error) {
	if c, ok := client.(*sns.Client); client == nil || ok && c == nil {
		return nil, errors.New("snssender: the client is nil: pass sns.NewFromConfig(cfg)")
	}
	if parts := strings.Split(topicARN, ":"); len(parts) != 6 || parts[0] != "arn" || parts[2] != "sns" {
		return nil, fmt.Errorf("snssender: %q is not a topic ARN: use one such "+
			"as arn:aws:sns:eu-central-1:111122223333:orders", topicARN)
	}
	return &Sender{client: client, arn: topicARN, fifo: strings.HasSuffix(topicARN, ".fifo")}, nil
}

// Send implements [outbox.Sender]: one PublishBatch for every 10 messages or 256 KB.
// [outbox.Sent.ID] is the MessageId, which subscribers get with the message unless their
// subscription has raw message delivery.
func (s *Sender) Send(ctx context.Context, messages []outbox.Message) []outbox.Sent {
	return outbox.InBatches(ctx, messages, awsbatch.Limits, awsbatch.Size, s.send)
}

func (s *Sender) send(ctx context.Context, batch []outbox.Message) ([]outbox.Sent, error) {
	in := &sns.PublishBatchInput{TopicArn: &s.arn}
	for i := range batch {
		m := &batch[i]
		body, _ := m.Text()
		entry := types.PublishBatchRequestEntry{
			Id: awsbatch.ID(i), Message: &body,
			MessageAttributes: awsbatch.Attributes(m, func(dataType, text *string) types.MessageAttributeValue {
				return types.MessageAttributeValue{DataType: dataType, StringValue: text}
			}),
		}
		if s.fifo {
			entry.MessageDeduplicationId, entry.MessageGroupId = &m.ID, awsbatch.Group(m)
		}
		in.PublishBatchRequestEntries = append(in.PublishBatchRequestEntries, entry)
	}
	out, err := s.client.PublishBatch(ctx, in)
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
