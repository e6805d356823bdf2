package queuepoller

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// deleteTimeout is for a deletion with the client's own retries.
const deleteTimeout = 10 * time.Second

// process delivers the received messages in one event. Close does not interrupt the function, and
// waits for it.
func (p *Poller) process(messages []types.Message) {
	d := Delivery{Messages: messages, Event: p.queue.event(messages)}
	var err error
	d.Result, err = p.function.Invoke(context.WithoutCancel(p.ctx), d.Event, nil)
	d.Returned, d.Reason = p.verdict(d.Result, err, ids(messages))
	p.delete(slices.DeleteFunc(slices.Clone(messages), func(m types.Message) bool {
		return slices.Contains(d.Returned, aws.ToString(m.MessageId))
	}))
	if p.options.Delivered != nil {
		p.options.Delivered(d)
	}
}

// verdict says which messages of a batch are redelivered after the function was invoked, and why.
func (p *Poller) verdict(result runtime.Result, err error, ids []string) (back []string, why error) {
	switch {
	case err != nil:
		return ids, err
	case result.Error != nil:
		return ids, result.Error
	case p.options.WholeBatch:
		return nil, nil
	}
	back, err = runtime.BatchItemFailures(result.Payload, ids)
	switch {
	case err != nil:
		return ids, err
	case len(back) > 0:
		return back, errReported
	}
	return nil, nil
}

// errReported is why messages that the function has named are redelivered.
var errReported = errors.New("the function reported them as failed")

func ids(messages []types.Message) []string {
	list := make([]string, len(messages))
	for i, m := range messages {
		list[i] = aws.ToString(m.MessageId)
	}
	return list
}

// delete deletes messages. What it cannot delete is redelivered.
func (p *Poller) delete(messages []types.Message) {
	if len(messages) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), deleteTimeout)
	defer cancel()
	entries := make([]types.DeleteMessageBatchRequestEntry, len(messages))
	for i, m := range messages {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
	}
	out, err := p.client.DeleteMessageBatch(ctx,
		&sqs.DeleteMessageBatchInput{QueueUrl: aws.String(p.url), Entries: entries})
	if err != nil {
		p.trouble("delete from %s: %w", p.url, err)
		return
	}
	for _, refused := range out.Failed {
		id := "?"
		if i, err := strconv.Atoi(aws.ToString(refused.Id)); err == nil && i >= 0 && i < len(messages) {
			id = aws.ToString(messages[i].MessageId)
		}
		p.trouble("delete message %s from %s: %s: %s", id, p.url, aws.ToString(refused.Code), aws.ToString(refused.Message))
	}
}
