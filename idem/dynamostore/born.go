package dynamostore

import (
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
)

// born writes the whole record of an attempt that took no claim.
func (s *Store) born(k *call, f protocol.Finish, w *unit, body protocol.Body, now time.Time) error {
	rec, err := f.Apply(nil, now)
	if err != nil {
		return k.fail(fmt.Errorf("an outcome in state %q without a claim: use Completed or Failed", f.Ending.State))
	}
	rec.Body = body
	cond := ifAbsent
	var names map[string]string // nil, not empty, where there are none
	var given item
	if f.Born.Seen != "" {
		cond += " OR " + ifSeen
		names, given = s.names.of(nWrite), item{":seen": &types.AttributeValueMemberS{Value: f.Born.Seen}}
	}
	var old item
	if w == nil {
		old, err = s.put(k, encode(rec), cond, given, names)
	} else {
		old, err = w.send(k, f.Write, types.TransactWriteItem{Put: &types.Put{
			TableName: s.table, Item: encode(rec), ConditionExpression: &cond,
			ExpressionAttributeNames: names, ExpressionAttributeValues: given,
			ReturnValuesOnConditionCheckFailure: allOld,
		}})
	}
	if tooLarge(err, f.Ending, k) {
		return &protocol.TooLargeError{Size: len(f.Ending.Result), Limit: maxItem}
	}
	return conclude(old, err, f.Write)
}
