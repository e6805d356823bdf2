package dynamostore

import (
	"context"
	"maps"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Changes from outside in a table without transactions. The UpdateItem of the change writes
// its audit entry into the record. Then the entry is filed: its item is put, and the entry
// is taken out of the record.
//
//   - No change is without its entry: one write makes both. The entry leaves the record only
//     once its item is there. What would take it away sooner is conditional on there being
//     none, and files it first: the next change from outside, the claim that replaces an
//     expired record, and every removal of the record. All other writes leave the
//     attribute as it is.
//   - No entry is without its change: an item is made of an entry that was in the record, or
//     of one whose write has landed.
//   - A process that dies in between leaves the entry in the record, where [Questions.AuditOf] finds
//     it. Any number may file it: its key and content are the same for all, and it is taken
//     out by its name.
//   - A lost reply is told from a refusal by the write's id, as without an entry. An item that
//     is put late replaces its like.
//
// The removal of a record has no record to carry its entry, nor has what is done to a message
// beside it. [Questions.Forget] and [Questions.Requeue] put the item first, as unconfirmed, then
// write, and confirm. If the write is refused and no try of it is in doubt, the item is deleted.
// So an entry that is confirmed is true, and one whose write nobody knows of says so.

// updateOutside sends the update of a change from outside. Without transactions its entry, if
// it has one, goes along in the record.
func (s *Store) updateOutside(k *call, id string, u *update, cond string, entry item) (item, error) {
	if s.alone {
		cond += ifFiled
	}
	if entry != nil {
		kept := maps.Clone(entry)
		delete(kept, schema.PK)
		u.add(entrySet)
		u.item[":audit_entry"] = &types.AttributeValueMemberM{Value: kept}
	}
	return s.update(k, id, u, cond)
}

// filing makes a write that is conditional on there being no entry in the record. One that
// is there is filed first, and the write's own afterwards. It returns what send does;
// landed reports whether the write has made the item that refused it.
func (s *Store) filing(k *call, entry item, landed func(item) bool, send func() (item, error)) (item, error) {
	if !s.alone {
		return send()
	}
	for n := 1; ; n++ {
		old, err := send()
		if err == nil || err == errRefused && landed(old) {
			if entry != nil {
				// If that fails the entry is in the record, and the change is made.
				_ = s.file(k, entry)
			}
			return old, err
		}
		if err != errRefused || !has(old, schema.AuditEntry) || n == maxForms {
			return old, err
		}
		before, err := entryIn(old)
		if err != nil {
			return nil, err
		}
		if err := s.file(k, before); err != nil {
			return nil, err
		}
	}
}

// entryIn is the item of the entry that the record has.
func entryIn(rec item) (item, error) {
	d := &decoder{item: rec, id: text(rec, schema.PK)}
	entry := maps.Clone(d.members(schema.AuditEntry))
	if d.err == nil && !strings.HasPrefix(text(entry, schema.SK), schema.AuditSK) {
		d.fail(schema.AuditEntry, "is no change from outside")
	}
	if d.err != nil {
		return nil, d.err
	}
	entry[schema.PK] = rec[schema.PK]
	return entry, nil
}

// file puts the item of a record's entry, and takes the entry out of the record. That
// its reply is lost says nothing of the call's own write.
func (s *Store) file(k *call, entry item) error {
	own := *k
	put := &dynamodb.PutItemInput{TableName: s.table, Item: entry}
	err := own.do(true, own.attempt, func(ctx context.Context) error {
		_, err := s.client.PutItem(ctx, put, s.optFns...)
		return err
	})
	if err != nil {
		return err
	}
	out := &dynamodb.UpdateItemInput{
		TableName: s.table, Key: key(text(entry, schema.PK)), UpdateExpression: aws.String(entryRemove),
		ConditionExpression: aws.String(ifThisEntry), ExpressionAttributeValues: item{":entry": entry[schema.SK]},
	}
	err = own.do(true, own.attempt, func(ctx context.Context) error {
		_, err := s.client.UpdateItem(ctx, out, s.optFns...)
		return err
	})
	if isConditionFailed(err) {
		return nil // it is out
	}
	return err
}

// intended makes a write with an audit entry that no record can carry: the entry is put as
// unconfirmed first, and confirmed once the write is made. It returns what the write does.
func (q *Questions) intended(k *call, a *protocol.Audit, write func() (item, error)) (item, error) {
	first := *a
	first.Unconfirmed = true
	it := encodeAudit(&first)
	entry := itemKey(a.ID, text(it, schema.SK))
	intent := *k
	err := intent.do(true, intent.attempt, func(ctx context.Context) error {
		_, err := q.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: q.table, Item: it, ConditionExpression: aws.String(ifAbsent)}, q.optFns...)
		return err
	})
	// Else an earlier call, or a try of this one, has put it.
	fresh := err == nil && !intent.maybe
	if err != nil && !isConditionFailed(err) {
		return nil, err
	}
	old, err := write()
	// If what follows fails the entry stays unconfirmed.
	after := *k
	switch {
	case err == nil:
		_ = after.do(true, after.attempt, func(ctx context.Context) error {
			_, err := q.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: q.table, Key: entry, UpdateExpression: aws.String(entryConfirm), ConditionExpression: aws.String(partIsThere),
			}, q.optFns...)
			return err
		})
	case err == errRefused && fresh && !k.maybe:
		// Every write that was sent for this entry is known to be refused.
		_ = after.do(true, after.attempt, func(ctx context.Context) error {
			_, err := q.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: q.table, Key: entry}, q.optFns...)
			return err
		})
	}
	return old, err
}
