// Package snssender sends outbox messages to an Amazon SNS topic.
//
// A message's body is the topic's message, Base64 if it is not text; its id, type,
// content type and attributes are message attributes ([outbox.AttributeID] and so
// on, and the message's own names), so that filter policies can go by them.
//
// To a FIFO topic (an ARN that ends with ".fifo") the message group is the ordering
// key, or the message id where there is none, and the deduplication id is the
// message id: SNS drops what is sent again within 5 minutes. Later repeats, and
// all repeats in a standard topic, reach the subscribers, who tell them by the id.
//
// It needs sns:Publish on the topic, and for an encrypted one kms:Decrypt and
// kms:GenerateDataKey on the key.
package snssender

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/smithy-go"

	"github.com/idem-go/idempotency/idem/outbox"
)

// limits of a PublishBatch.
var limits = outbox.Limits{Count: 10, Bytes: 256 << 10}

// Client is what a sender uses of a *sns.Client. Its own retries are welcome.
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
		return nil, fmt.Errorf("snssender: %q is no topic ARN, such as arn:aws:sns:eu-central-1:111122223333:orders", topicARN)
	}
	return &Sender{client: client, arn: topicARN, fifo: strings.HasSuffix(topicARN, ".fifo")}, nil
}

// Send implements [outbox.Sender]: one PublishBatch for every 10 messages or 256 KB.
func (s *Sender) Send(ctx context.Context, messages []outbox.Message) []error {
	return outbox.InBatches(ctx, messages, limits, size, s.send)
}

func (s *Sender) send(ctx context.Context, batch []outbox.Message) ([]error, error) {
	in := &sns.PublishBatchInput{TopicArn: &s.arn}
	for i := range batch {
		m := &batch[i]
		body, _ := m.Text()
		entry := types.PublishBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), Message: &body,
			MessageAttributes: map[string]types.MessageAttributeValue{},
		}
		for name, value := range m.Tags() {
			entry.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(value)}
		}
		if s.fifo {
			entry.MessageDeduplicationId = &m.ID
			entry.MessageGroupId = &m.ID
			if m.OrderingKey != "" {
				entry.MessageGroupId = &m.OrderingKey
			}
		}
		in.PublishBatchRequestEntries = append(in.PublishBatchRequestEntries, entry)
	}
	out, err := s.client.PublishBatch(ctx, in)
	if err != nil {
		err = fmt.Errorf("sns: %w", err)
		var api smithy.APIError
		// A topic that cannot be is everybody's trouble, and can be put right.
		if errors.As(err, &api) && final(api.ErrorCode()) && !strings.Contains(api.ErrorMessage(), "TopicArn") {
			return nil, outbox.Reject(err)
		}
		return nil, err
	}
	errs := make([]error, len(batch))
	for i := range errs {
		errs[i] = errors.New("sns: the reply says nothing about the message")
	}
	at := func(id *string) *error {
		if n, err := strconv.Atoi(aws.ToString(id)); err == nil && n >= 0 && n < len(errs) {
			return &errs[n]
		}
		return new(error)
	}
	for _, ok := range out.Successful {
		*at(ok.Id) = nil
	}
	for _, f := range out.Failed {
		err := fmt.Errorf("sns: %s: %s", aws.ToString(f.Code), aws.ToString(f.Message))
		if f.SenderFault && final(aws.ToString(f.Code)) {
			err = outbox.Reject(err)
		}
		*at(f.Id) = err
	}
	return errs, nil
}

// final lists the codes that are about the message and not about the topic, its
// permissions or its load.
func final(code string) bool {
	switch strings.TrimSuffix(code, "Exception") {
	case "InvalidParameter", "InvalidParameterValue", "ParameterValueInvalid", "BatchRequestTooLong", "Validation":
		return true
	}
	return false
}

// size is what SNS counts: message, and names, types and values of attributes.
func size(m *outbox.Message) int {
	body, _ := m.Text()
	n := len(body)
	for name, value := range m.Tags() {
		n += len(name) + len("String") + len(value)
	}
	return n
}
