package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
)

// fulfil is the orders function's operation, for its producer's side.
var fulfil = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable}

// queue sends an order that is delivered twice, sends it a second time, and sends
// a message that nobody can process.
func (t *tour) queue(ctx context.Context) {
	order := t.key("order")
	body := fmt.Sprintf(`{"orderId": %q, "items": [{"sku": "book", "quantity": 2}]}`, order)
	t.wire.watch(order)
	t.mapping.watch(order, 1)
	t.add(ctx, "an order through the queue", "executed, acknowledged", func() string {
		if err := t.order(ctx, order, body); err != nil {
			return err.Error()
		}
		return t.delivery(ctx, order)
	})
	t.add(ctx, "delivered again, acknowledgement lost", "replayed, acknowledged", func() string {
		if err := t.mapping.again(ctx, order); err != nil {
			return err.Error()
		}
		return t.delivery(ctx, order)
	})
	t.add(ctx, "the producer sends it again", "replayed, acknowledged", func() string {
		if err := t.order(ctx, order, body); err != nil {
			return err.Error()
		}
		return t.delivery(ctx, order)
	})
	t.add(ctx, "the order's rows, and their writes", "1 row, 1 write", func() string { return t.effects(ctx, order) })
	t.add(ctx, "messages left in the queue", "0", func() string { return t.left(ctx, t.queues.url, 0) })
	t.poison(ctx)
}

// order sends an order as its producer does.
func (t *tour) order(ctx context.Context, key, body string) error {
	sending, err := idemlambda.SQSSendingOf(fulfil, defaultTenant, key)
	if err != nil {
		return err
	}
	_, err = t.queues.send(ctx, body, sending.Attributes)
	return err
}

// queuePatience is for what takes milliseconds on an idle machine.
const queuePatience = 15 * time.Second

// await asks until the answer is there or patience is over.
func await(ctx context.Context, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, queuePatience)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	return true
}

// delivery waits for the next delivery of a watched message and says what became
// of it. One for which the store was too slow is followed by another.
func (t *tour) delivery(ctx context.Context, text string) string {
	for try := 1; ; try++ {
		n := t.told[text]
		if !await(ctx, func() bool { return len(t.mapping.deliveries(text)) > n }) {
			return fmt.Sprintf("not delivered within %v", queuePatience)
		}
		t.told[text]++
		got := t.outcome(ctx, t.mapping.deliveries(text)[n])
		if !strings.HasPrefix(got, string(idemlambda.ReasonStoreUnavailable)) || try == maxReceives-1 {
			return got
		}
		if err := t.mapping.again(ctx, text); err != nil {
			return err.Error()
		}
	}
}

func (t *tour) outcome(ctx context.Context, d queuepoller.Delivery) string {
	if d.Err != nil {
		return d.Err.Error()
	}
	outcome := t.deliveryOf(ctx, d.Result).summary().outcome
	if len(d.Returned) > 0 {
		return outcome + ", redelivered"
	}
	return outcome + ", acknowledged"
}

// effects counts the order's rows and the requests that wrote them.
func (t *tour) effects(ctx context.Context, order string) string {
	client, err := newDynamoDB(t.db.Endpoint())
	if err != nil {
		return err.Error()
	}
	rows := 0
	table, filter := ordersTable, "order_id = :o"
	scan := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
		TableName: &table, FilterExpression: &filter,
		ExpressionAttributeValues: map[string]types.AttributeValue{":o": &types.AttributeValueMemberS{Value: order}},
	})
	for scan.HasMorePages() {
		page, err := scan.NextPage(ctx)
		if err != nil {
			return err.Error()
		}
		rows += len(page.Items)
	}
	return fmt.Sprintf("%d row, %d write", rows, t.wire.written(order))
}

// left waits until a queue holds so many messages, and says how many it holds.
func (t *tour) left(ctx context.Context, url string, want int) string {
	got := 0
	var err error
	await(ctx, func() bool {
		got, err = t.queues.depth(ctx, url)
		return err != nil || got == want
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(got)
}

// poison sends a message without a key: it is redelivered as often as the queue allows,
// and then to the dead-letter queue, from where it is taken.
func (t *tour) poison(ctx context.Context) {
	text := t.key("poison")
	t.mapping.watch(text, 0)
	want := fmt.Sprintf("%d × key_invalid, then a dead letter", maxReceives)
	t.add(ctx, "a message without a key", want, func() string {
		if _, err := t.queues.send(ctx, fmt.Sprintf(`{"orderId": %q}`, text), nil); err != nil {
			return err.Error()
		}
		for n := 1; n <= maxReceives; n++ {
			if got := t.delivery(ctx, text); got != "key_invalid, redelivered" {
				return fmt.Sprintf("delivery %d: %s", n, got)
			}
			if err := t.mapping.again(ctx, text); err != nil {
				return err.Error()
			}
		}
		if got := t.left(ctx, t.queues.deadURL, 1); got != "1" {
			return got + " messages in the dead-letter queue"
		}
		if err := t.takeDead(ctx, text); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d × key_invalid, then a dead letter", len(t.mapping.deliveries(text)))
	})
}

// takeDead takes the message out of the dead-letter queue.
func (t *tour) takeDead(ctx context.Context, text string) error {
	out, err := t.queues.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &t.queues.deadURL})
	if err != nil {
		return err
	}
	if len(out.Messages) != 1 || !strings.Contains(*out.Messages[0].Body, text) {
		return fmt.Errorf("the dead-letter queue gave %d messages, and not the one that was sent", len(out.Messages))
	}
	_, err = t.queues.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &t.queues.deadURL, ReceiptHandle: out.Messages[0].ReceiptHandle})
	return err
}
