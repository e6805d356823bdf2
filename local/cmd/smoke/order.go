package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/cmd/examples"
)

const (
	// customer is the tenant of the run's order.
	customer = "smoke"
	// ordersTimeout is the orders function's, as infra has it.
	ordersTimeout = 30 * time.Second
	// looks in a row, one a second, find no message in an empty queue: SQS's numbers are approximate.
	looks = 3
	// emptyTime is how long the deletion waits for an empty queue.
	emptyTime = 20 * time.Second
	// notSeen stands for a check whose message may still be among those of others.
	notSeen = "not seen: others use the queue, and it was not empty"
)

// settling is how much longer than the first order its repeat may take. Before, an empty queue says nothing: SQS counts
// a message up to a minute after it was sent.
var settling = 10 * time.Second

// queue checks the queue of orders, and finds how long an order may take.
func (r *run) queue() {
	want := fmt.Sprintf("dead letters, visibility >= %v", ordersTimeout)
	r.check("the queue of orders", want, func() string {
		got, err := r.queues.GetQueueAttributes(r.ctx, &sqs.GetQueueAttributesInput{
			QueueUrl:       aws.String(r.orders["QueueURL"]),
			AttributeNames: []types.QueueAttributeName{"RedrivePolicy", "VisibilityTimeout"},
		})
		if err != nil {
			return err.Error()
		}
		seconds, _ := strconv.Atoi(got.Attributes["VisibilityTimeout"]) // other text is too short
		visibility := time.Duration(seconds) * time.Second
		r.patience = visibility + time.Minute
		if got.Attributes["RedrivePolicy"] == "" || visibility < ordersTimeout {
			return fmt.Sprintf("visibility %v, redrive policy %q", visibility, got.Attributes["RedrivePolicy"])
		}
		if _, err := r.held(r.ctx); err != nil { // whether others use it
			return err.Error()
		}
		return want
	})
	r.check("an order that was not sent", "rows: 0, no record", func() string {
		got, _ := r.state(r.name)
		return got
	})
}

func (r *run) order() {
	id, records, rows := r.name+"-order", r.orders["TableName"], r.orders["OrdersTableName"]
	row := fmt.Sprintf("the row of the order %s, customer %s, in %s", id, customer, rows)
	var first string
	r.check("an order through the queue", "rows: 1, completed", func() (got string) {
		r.made = append(r.made,
			made{recordOf(examples.Fulfil, id, records), func(ctx context.Context) error {
				if _, err := r.drain(ctx, emptyTime); err != nil {
					return fmt.Errorf("it stays until it expires, for a repeat of the order: %w", err)
				}
				return r.forget(ctx, records, examples.Fulfil, id, customer)
			}},
			made{row, func(ctx context.Context) error {
				old, err := r.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{
					TableName: &rows, Key: rowOf(id), ReturnValues: dynamodbtypes.ReturnValueAllOld,
				})
				if err == nil && old.Attributes == nil {
					return errAbsent
				}
				return err
			}},
		)
		begun := time.Now()
		if err := r.sendOrder(id); err != nil {
			return err.Error()
		}
		defer func() { r.delay = time.Since(begun) }()
		ctx, cancel := context.WithTimeout(r.ctx, r.patience)
		defer cancel()
		for {
			if got, first = r.state(id); first != "" || smithytime.SleepWithContext(ctx, time.Second) != nil {
				return got
			}
		}
	})
	if first == "" {
		return
	}
	r.left = append(r.left, "the message order.accepted about "+id+", sent to the topic, and for a day in "+records)
	r.check("the producer sends it again", "rows: 1, completed, same record", func() string {
		if err := r.sendOrder(id); err != nil {
			return err.Error()
		}
		empty, err := r.drain(r.ctx, r.patience)
		if err != nil {
			return err.Error()
		}
		got, again := r.state(id)
		switch {
		case again != first:
			return got + ", OTHER record"
		case !empty:
			return notSeen
		}
		return got + ", same record"
	})
}

func (r *run) sendOrder(id string) error {
	r.sent++
	text := func(s string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
	}
	_, err := r.queues.SendMessage(r.ctx, &sqs.SendMessageInput{
		QueueUrl:    aws.String(r.orders["QueueURL"]),
		MessageBody: aws.String(fmt.Sprintf(`{"orderId": %q, "items": [{"sku": "smoke", "quantity": 1}]}`, id)),
		MessageAttributes: map[string]types.MessageAttributeValue{
			idemlambda.SQSTenantAttribute: text(customer), idemlambda.SQSKeyAttribute: text(id),
		},
	})
	r.last = time.Now()
	return err
}

// state describes an order's row and its record. The last write of a completed record differs after another execution.
func (r *run) state(id string) (text, write string) {
	_, rec, err := r.record(r.ctx, r.orders["TableName"], examples.Fulfil, id, customer)
	if err != nil {
		return err.Error(), ""
	}
	row, err := r.db.GetItem(r.ctx, &dynamodb.GetItemInput{ // it commits with the record
		TableName: aws.String(r.orders["OrdersTableName"]), Key: rowOf(id), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return err.Error(), ""
	}
	rows := min(len(row.Item), 1)
	switch {
	case rec == nil:
		return fmt.Sprintf("rows: %d, no record", rows), ""
	case rec.State == idem.Completed:
		write = rec.Write
	}
	return fmt.Sprintf("rows: %d, %s", rows, rec.State), write
}

func rowOf(id string) map[string]dynamodbtypes.AttributeValue {
	return map[string]dynamodbtypes.AttributeValue{
		"customer": &dynamodbtypes.AttributeValueMemberS{Value: customer},
		"order_id": &dynamodbtypes.AttributeValueMemberS{Value: id},
	}
}

// drain waits until the run's orders have left the queue. That is when it is empty, and the last one was sent as long
// ago as the first one took, and settling. Where others use it too, it may never be empty: drain waits no longer.
func (r *run) drain(ctx context.Context, limit time.Duration) (empty bool, err error) {
	if r.sent == 0 {
		return true, nil
	}
	from := r.last.Add(r.delay + settling)
	limit += max(0, time.Until(from))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for zeros := 0; zeros < looks; zeros++ {
		held, err := r.held(ctx)
		if err != nil {
			return false, err
		}
		early := time.Now().Before(from)
		if early || held > 0 {
			zeros = -1
		}
		if !early && held > 0 && r.others {
			r.left = append(r.left, fmt.Sprintf("perhaps a message of the order, in %s: others use that queue, and in %v it "+
				"was not empty. A late delivery writes the row and the record", r.orders["QueueURL"],
				time.Since(r.last).Round(time.Second)))
			r.sent = 0
			return false, nil
		}
		if smithytime.SleepWithContext(ctx, time.Second) != nil {
			return false, fmt.Errorf("after %v %s has %d messages", limit.Round(time.Second), r.orders["QueueURL"], held)
		}
	}
	r.sent = 0
	return true, nil
}

// held counts the messages in the queue of orders. More than the run has sent are from others.
func (r *run) held(ctx context.Context) (int, error) {
	held, err := queue.Held(ctx, r.queues, r.orders["QueueURL"])
	r.others = r.others || held > r.sent
	return held, err
}
