package dynamostore

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Requeue has a dead letter sent again, from its first try on, and keeps who did so in one
// transaction with that; without transactions it writes the audit entry first. It returns an
// error that matches [protocol.ErrNotFound] if there is no such dead letter any more as it was
// read.
func (q *Questions) Requeue(ctx context.Context, e *outbox.Entry, a protocol.Audit) error {
	if e.Unreadable != nil {
		return e.Unreadable
	}
	k := q.retry.begin(ctx, "Requeue")
	defer k.end()
	u := newUpdate("SET in_state = :state, open_shard = :open_shard, open_due = :at REMOVE tries, reason, dead_at", 5, 2)
	u.str(":state", schema.OutboxNew)
	u.str(":open_shard", outboxShard(schema.OutboxShard, e.ID, &e.Message))
	u.item[":at"] = openDue(e.Created, e.Number)
	u.num(":created", millis(e.Created))
	u.str(":dead", schema.OutboxDead)
	u.num(":tries", int64(e.Tries))
	u.str(":reason", e.Reason)
	expr, cond := u.expression(), ifDead
	// An earlier try that was applied has made its own condition false, and the relay may be at
	// the message by now. That it may take another's for its own does no harm: the message is
	// sent again.
	landed := func(old item) bool {
		if !k.maybe || old == nil {
			return false
		}
		now := decodeMessage(old)
		return now.Unreadable == nil && now.Created.Equal(e.Created) && now.State != outbox.Dead
	}
	var old item
	var err error
	if q.alone {
		in := &dynamodb.UpdateItemInput{
			TableName: q.table, Key: messageKey(e.Ref()), UpdateExpression: &expr, ConditionExpression: &cond,
			ExpressionAttributeValues: u.item, ReturnValuesOnConditionCheckFailure: allOld,
		}
		old, err = q.intended(k, &a, func() (item, error) {
			old, err := q.send(k, in.Key, func(ctx context.Context) error {
				_, err := q.client.UpdateItem(ctx, in, q.optFns...)
				return err
			})
			if err == errRefused && landed(old) {
				err = nil // so that the entry is confirmed
			}
			return old, err
		})
	} else {
		old, err = q.auditWrite(e.Record, &a).send(k, "requeue "+a.Entry, types.TransactWriteItem{Update: &types.Update{
			TableName: q.table, Key: messageKey(e.Ref()), UpdateExpression: &expr, ConditionExpression: &cond,
			ExpressionAttributeValues: u.item, ReturnValuesOnConditionCheckFailure: allOld,
		}})
	}
	if err != errRefused {
		return err
	}
	if landed(old) {
		return nil
	}
	return fmt.Errorf("%w: message %s of record %q is no dead letter any more, or has died once more since it was read", protocol.ErrNotFound, e.ID, e.Record)
}
