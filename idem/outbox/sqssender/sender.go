// Package sqssender sends outbox messages to an Amazon SQS queue.
//
// A message's body is the queue's message body, Base64 if it is not text; its id,
// type, content type and attributes are message attributes ([outbox.AttributeID]
// and so on, and the message's own names).
//
// To a FIFO queue (a URL that ends with ".fifo") the message group is the ordering
// key, or the message id where there is none, and the deduplication id is the
// message id: SQS drops what is sent again within 5 minutes. Later repeats, and
// all repeats in a standard queue, reach the consumer, who tells them by the id.
//
// It needs sqs:SendMessage on the queue, and for an encrypted one kms:Decrypt and
// kms:GenerateDataKey on the key.
package sqssender

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/idem-go/idempotency/idem/outbox"
)

// limits of a SendMessageBatch: 10 messages and 1 MiB; a quarter of that suits
// queues and servers that have not been told of it.
var limits = outbox.Limits{Count: 10, Bytes: 256 << 10}

// Client is what a sender uses of a *sqs.Client. Its own retries are welcome.
type Client interface {
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
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
		return nil, fmt.Errorf("sqssender: %q is no queue URL, such as https://sqs.eu-central-1.amazonaws.com/111122223333/orders", queueURL)
	}
	return &Sender{client: client, url: queueURL, fifo: strings.HasSuffix(queueURL, ".fifo")}, nil
}

// Send implements [outbox.Sender]: one SendMessageBatch for every 10 messages or
// 256 KB.
func (s *Sender) Send(ctx context.Context, messages []outbox.Message) []error {
	return outbox.InBatches(ctx, messages, limits, size, s.send)
}

func (s *Sender) send(ctx context.Context, batch []outbox.Message) ([]error, error) {
	in := &sqs.SendMessageBatchInput{QueueUrl: &s.url}
	for i := range batch {
		m := &batch[i]
		body, _ := m.Text()
		entry := types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: &body,
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
		in.Entries = append(in.Entries, entry)
	}
	out, err := s.client.SendMessageBatch(ctx, in)
	if err != nil {
		err = fmt.Errorf("sqs: %w", err)
		var api smithy.APIError
		if errors.As(err, &api) && final(api.ErrorCode()) {
			return nil, outbox.Reject(err)
		}
		return nil, err
	}
	errs := make([]error, len(batch))
	for i := range errs {
		errs[i] = errors.New("sqs: the reply says nothing about the message")
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
		err := fmt.Errorf("sqs: %s: %s", aws.ToString(f.Code), aws.ToString(f.Message))
		if f.SenderFault && final(aws.ToString(f.Code)) {
			err = outbox.Reject(err)
		}
		*at(f.Id) = err
	}
	return errs, nil
}

// final lists the codes that are about the message and not about the queue, its
// permissions or its load.
func final(code string) bool {
	switch code[strings.LastIndexByte(code, '.')+1:] {
	case "InvalidMessageContents", "InvalidParameterValue", "InvalidAttributeName", "InvalidAttributeValue",
		"MissingParameter", "BatchRequestTooLong":
		return true
	}
	return false
}

// size is what SQS counts: body, and names, types and values of attributes.
func size(m *outbox.Message) int {
	body, _ := m.Text()
	n := len(body)
	for name, value := range m.Tags() {
		n += len(name) + len("String") + len(value)
	}
	return n
}
