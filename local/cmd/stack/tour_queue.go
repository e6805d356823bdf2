package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
)

// fulfil is the orders function's operation, for its producer's side, and statement that of the
// statements function.
var (
	fulfil    = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable}
	statement = idem.Operation{Name: "statement", Repeat: idem.Repeatable}
)

// orders sends an order, has it delivered once more, sends it a second time, and sends
// a message that nobody can process.
func (t *tour) orders(ctx context.Context) {
	order := t.key("order")
	body := fmt.Sprintf(`{"orderId": %q, "items": [{"sku": "book", "quantity": 2}]}`, order)
	t.wire.watch(order)
	send := func() string {
		sending, err := idemlambda.SQSAttributesFor(fulfil, defaultTenant, order)
		if err == nil {
			err = t.sendMessage(ctx, body, sending)
		}
		if err != nil {
			return err.Error()
		}
		return t.delivery(ctx, t.queue, order)
	}
	t.add(ctx, "an order through the queue", "executed, acknowledged", send)
	t.add(ctx, "the same delivery again", "replayed", func() string { return t.again(ctx, order) })
	t.add(ctx, "the producer sends it again", "replayed, acknowledged", send)
	t.add(ctx, "the order's rows, and their writes", "1 row, 1 write", func() string { return t.effects(ctx, order) })
	t.add(ctx, "messages left in the queue", "0", func() string { return t.left(ctx, t.queue.URL, 0) })
	t.poison(ctx)
}

// sendMessage puts a message into the orders' queue.
func (t *tour) sendMessage(ctx context.Context, body string, sending idemlambda.SQSAttributes) error {
	in := &sqs.SendMessageInput{QueueUrl: &t.queue.URL, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{}}
	if sending.GroupID != "" {
		in.MessageGroupId = &sending.GroupID
	}
	for name, value := range sending.Attributes {
		in.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	_, err := t.queue.Client.SendMessage(ctx, in)
	return err
}

// again gives the function a delivery that it has had, as the queue does where the
// deletion that follows it is lost.
func (t *tour) again(ctx context.Context, text string) string {
	before := t.queue.delivered.of(text)
	if len(before) == 0 {
		return "it was not delivered before"
	}
	result, err := t.pools[orders].Invoke(ctx, before[0].Event, nil)
	if err != nil {
		return err.Error()
	}
	return t.outcomeOf(ctx, result)
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

// delivery waits for the next delivery of a watched message and returns its result. After a
// delivery for which the store was too slow it waits for another.
func (t *tour) delivery(ctx context.Context, q mapped, text string) string {
	for try := 1; ; try++ {
		d, ok := t.next(ctx, q, text)
		if !ok {
			return fmt.Sprintf("not delivered within %v", queuePatience)
		}
		got := t.outcome(ctx, d)
		if !strings.HasPrefix(got, string(idemlambda.ReasonStoreUnavailable)) || try == maxReceives-1 {
			return got
		}
		if err := q.redeliver(ctx, text); err != nil {
			return err.Error()
		}
	}
}

// next waits for the next delivery of a watched message.
func (t *tour) next(ctx context.Context, q mapped, text string) (queuepoller.Delivery, bool) {
	n := t.reported[text]
	if !await(ctx, func() bool { return len(q.delivered.of(text)) > n }) {
		return queuepoller.Delivery{}, false
	}
	t.reported[text]++
	return q.delivered.of(text)[n], true
}

func (t *tour) outcome(ctx context.Context, d queuepoller.Delivery) string {
	if d.Err != nil {
		return d.Err.Error()
	}
	outcome := t.outcomeOf(ctx, d.Result)
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
	rows, err := client.Query(ctx, &dynamodb.QueryInput{
		TableName: aws.String(ordersTable), KeyConditionExpression: aws.String("customer = :c AND order_id = :o"),
		ExpressionAttributeValues: map[string]dynamodbtypes.AttributeValue{
			":c": &dynamodbtypes.AttributeValueMemberS{Value: defaultTenant}, ":o": &dynamodbtypes.AttributeValueMemberS{Value: order},
		},
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d row, %d write", rows.Count, t.wire.writes.Load())
}

// left waits until a queue has this many messages, and returns how many it has.
func (t *tour) left(ctx context.Context, url string, want int) string {
	got := 0
	var err error
	await(ctx, func() bool {
		got, err = queue.Held(ctx, t.queue.Client, url)
		return err != nil || got == want
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(got)
}

// poison sends a message without a key. The message is redelivered as often as the queue
// allows, and then moved to the dead-letter queue, from which poison removes it.
func (t *tour) poison(ctx context.Context) {
	text := t.key("poison")
	want := fmt.Sprintf("%d × key_invalid, then a dead letter", maxReceives)
	t.add(ctx, "a message without a key", want, func() string {
		if err := t.sendMessage(ctx, fmt.Sprintf(`{"orderId": %q}`, text), idemlambda.SQSAttributes{}); err != nil {
			return err.Error()
		}
		for n := 1; n <= maxReceives; n++ {
			if got := t.delivery(ctx, t.queue, text); got != "key_invalid, redelivered" {
				return fmt.Sprintf("delivery %d: %s", n, got)
			}
			if err := t.queue.redeliver(ctx, text); err != nil {
				return err.Error()
			}
		}
		if got := t.left(ctx, t.queue.DeadURL, 1); got != "1" {
			return got + " messages in the dead-letter queue"
		}
		if err := t.takeDead(ctx, text); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d × key_invalid, then a dead letter", len(t.queue.delivered.of(text)))
	})
}

// takeDead removes the message from the dead-letter queue.
func (t *tour) takeDead(ctx context.Context, text string) error {
	out, err := t.queue.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &t.queue.DeadURL})
	if err != nil {
		return err
	}
	if len(out.Messages) != 1 || !strings.Contains(*out.Messages[0].Body, text) {
		return fmt.Errorf("the dead-letter queue gave %d messages, and not the one that was sent", len(out.Messages))
	}
	_, err = t.queue.Client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &t.queue.DeadURL, ReceiptHandle: out.Messages[0].ReceiptHandle})
	return err
}
