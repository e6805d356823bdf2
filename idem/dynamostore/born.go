package dynamostore

import (
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
)

// born writes the whole record of an attempt that took no claim.
func (s *Store) born(k *call, f idem.Finish, w *unit, body idem.Body, now time.Time) error {
	rec, err := f.Apply(nil, now)
	if err != nil {
		return k.fail(fmt.Errorf("an outcome in state %q without a claim: use Completed or Failed", f.Ending.State))
	}
	rec.Body = body
	vals, names := newValues(5, 2), nState
	vals.str(":completed", string(idem.Completed))
	vals.str(":failed", string(idem.Failed))
	vals.str(":retryable", string(idem.Retryable))
	vals.num(":at", now.Unix())
	vals.num(":v", schema.RecordVersion)
	cond := ifExpired
	if f.Born.Seen != "" {
		cond += " OR " + ifSeen
		vals.str(":seen", f.Born.Seen)
		names |= nWrite
	}
	cond = ifAbsent + " OR " + cond
	var old item
	if w == nil {
		old, err = s.put(k, encode(rec), cond, vals.item, s.names.of(names))
	} else {
		old, err = w.send(k, f.Write, types.TransactWriteItem{Put: &types.Put{
			TableName: s.table, Item: encode(rec), ConditionExpression: &cond,
			ExpressionAttributeNames: s.names.of(names), ExpressionAttributeValues: vals.item,
			ReturnValuesOnConditionCheckFailure: allOld,
		}})
	}
	if tooLarge(err, f.Ending, k) {
		return &idem.TooLargeError{Size: len(f.Ending.Result), Limit: maxItem}
	}
	return conclude(old, err, f.Write)
}
