package main

import (
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem/testenv/queue"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/cmd/examples"
)

// queue sends an order, has it delivered once more, sends it a second time, and sends
// a message that cannot be processed.
func (t *tour) queue() {
	order := t.request("", "order").key
	body := fmt.Sprintf(`{"orderId": %q, "items": [{"sku": "book", "quantity": 2}]}`, order)
	writes := t.orderWrites.Load()
	send := func() string {
		sending, err := idemlambda.SQSAttributesFor(examples.Fulfil, defaultTenant, order)
		if err == nil {
			err = t.sendMessage(body, sending.Attributes)
		}
		if err != nil {
			return err.Error()
		}
		return t.delivery(t.orders, order)
	}
	t.add("an order through the queue", "acknowledged", send)
	t.add("the same delivery again", "acknowledged", func() string { return t.again(order) })
	t.add("the producer sends it again", "acknowledged", send)
	t.add("the order's rows, and their writes", "1 row, 1 write", func() string {
		rows, err := t.rows(order)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d row, %d write", rows, t.orderWrites.Load()-writes)
	})
	t.add("messages left in the queue", "0", func() string { return t.left(t.orders.url, 0) })
	t.add("a message without a key", fmt.Sprintf("%d × redelivered, then a dead letter", maxReceives), t.poison)
}

// sendMessage puts a message into the orders' queue.
func (t *tour) sendMessage(body string, attributes map[string]string) error {
	values := map[string]types.MessageAttributeValue{}
	for name, value := range attributes {
		values[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	_, err := t.orders.Client.SendMessage(t.ctx, &sqs.SendMessageInput{
		QueueUrl: &t.orders.url, MessageBody: &body, MessageAttributes: values,
	})
	return err
}

// again gives the function a delivery that it has had, as the queue does where the
// deletion that follows it is lost.
func (t *tour) again(text string) string {
	before := t.orders.of(text)
	if len(before) == 0 {
		return "it was not delivered before"
	}
	answer, err := t.Pool(t.names[orders]).Call(t.ctx, before[0].Event)
	if err == nil {
		_, err = runtime.BatchItemFailures(answer, nil)
	}
	if err != nil {
		return err.Error()
	}
	return "acknowledged"
}

// delivery waits for the next delivery of a message, and returns what becomes of the message. After a
// delivery for which the store was too slow it waits for another one.
func (t *tour) delivery(m *mapping, text string) string {
	for try := 1; ; try++ {
		d, ok := t.next(m, text)
		switch {
		case !ok:
			return fmt.Sprintf("not delivered within %v", patience)
		case d.Reason == nil:
			return "acknowledged"
		case try == maxReceives-1:
			return d.Reason.Error()
		}
		if err := m.redeliver(t.ctx, text); err != nil {
			return err.Error()
		}
	}
}

// next waits for the next delivery of a message.
func (t *tour) next(m *mapping, text string) (queuepoller.Delivery, bool) {
	n := t.seen[text]
	if !t.await(func() bool { return len(m.of(text)) > n }) {
		return queuepoller.Delivery{}, false
	}
	t.seen[text]++
	return m.of(text)[n], true
}

// rows counts the order's rows.
func (t *tour) rows(order string) (int32, error) {
	rows, err := t.DynamoDB.Query(t.ctx, &dynamodb.QueryInput{
		TableName: &t.orderRows, KeyConditionExpression: aws.String("customer = :c AND order_id = :o"),
		ExpressionAttributeValues: map[string]dynamodbtypes.AttributeValue{
			":c": &dynamodbtypes.AttributeValueMemberS{Value: defaultTenant},
			":o": &dynamodbtypes.AttributeValueMemberS{Value: order},
		},
	})
	if err != nil {
		return 0, err
	}
	return rows.Count, nil
}

// left waits until a queue has this many messages, and returns how many it has.
func (t *tour) left(url string, want int) string {
	got := 0
	var err error
	t.await(func() bool {
		got, err = queue.Held(t.ctx, t.orders.Client, url)
		return err != nil || got == want
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(got)
}

// poison sends a message without a key. The message is redelivered as often as the queue
// allows, and then moved to the dead-letter queue.
func (t *tour) poison() string {
	text := t.request("", "poison").key
	if err := t.sendMessage(fmt.Sprintf(`{"orderId": %q}`, text), nil); err != nil {
		return err.Error()
	}
	for range maxReceives {
		if d, ok := t.next(t.orders, text); !ok || d.Reason == nil {
			return fmt.Sprintf("redelivered %d times", t.seen[text]-1)
		}
		if err := t.orders.redeliver(t.ctx, text); err != nil {
			return err.Error()
		}
	}
	if got := t.left(t.orders.deadURL, 1); got != "1" {
		return got + " messages in the dead-letter queue"
	}
	return fmt.Sprintf("%d × redelivered, then a dead letter", len(t.orders.of(text)))
}
