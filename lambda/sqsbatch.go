package idemlambda

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
)

// sqsRedeliveryTime is what the OnRedelivery hook has: one call for every ten messages,
// and a retry.
const sqsRedeliveryTime = 2 * time.Second

// sqsQueue is the handler of a queue.
type sqsQueue struct {
	source[events.SQSMessage]
	onRedelivery func(context.Context, []SQSDelivery)
}

func (q *sqsQueue) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	res := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	var back []SQSDelivery
	named := map[string]bool{}
	for _, d := range q.deliver(ctx, event.Records) {
		if d.out.Reason.Acknowledges() {
			continue
		}
		back = append(back, d.out)
		// A message without an id, which SQS does not send, cannot be named: Lambda
		// takes an empty name for the failure of the whole batch, which loses nothing.
		if id := d.out.Event.MessageId; !named[id] {
			named[id] = true
			res.BatchItemFailures = append(res.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
		}
	}
	q.tellRedelivery(ctx, back)
	return res, nil
}

const sqsGroup = "MessageGroupId"

// sqsLane is the group of a FIFO queue's message. It asks for the ARN first: messages
// of standard queues may have a group too, which spreads them fairly and orders
// nothing.
func sqsLane(m *events.SQSMessage) (string, bool) {
	fifo := m.Attributes[sqsGroup] != ""
	if m.EventSourceARN != "" {
		fifo = strings.HasSuffix(m.EventSourceARN, ".fifo")
	}
	return m.Attributes[sqsGroup], fifo
}

func sqsReceives(m *events.SQSMessage) slog.Attr {
	return slog.String("receives", m.Attributes["ApproximateReceiveCount"])
}

// tellRedelivery hands the messages that will be redelivered to the hook.
func (q *sqsQueue) tellRedelivery(ctx context.Context, back []SQSDelivery) {
	if q.onRedelivery == nil || len(back) == 0 {
		return
	}
	limit := sqsRedeliveryTime
	if kill, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(kill)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	alone(func() {
		defer func() {
			if r := recover(); r != nil {
				q.logger().LogAttrs(ctx, slog.LevelError, "idem: the OnRedelivery hook panicked", slog.String("panic", fmt.Sprint(r)))
			}
		}()
		q.onRedelivery(ctx, back)
	})
}
