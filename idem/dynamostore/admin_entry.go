package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
)

// audited makes a change from outside together with its audit entry, if it has one: in one
// transaction, of which change gets the entry's part. Without transactions it makes three writes:
// the entry, as unconfirmed; the change; and the entry again, confirmed.
//
//   - No change is without its entry, whatever dies in between: an entry that cannot be written
//     stops the change.
//   - An entry that is confirmed is true. It stays unconfirmed if the process dies before the last
//     write, or if the change was refused after a try of it had got no answer.
//   - The entry of a change that was certainly not made is deleted, by the call that has written
//     it. A caller without dynamodb:DeleteItem leaves it unconfirmed.
//   - The same change sent again finds its entry, and confirms it once the change has landed.
//
// Change returns nil exactly if the change is made, by this try or an earlier one.
func (s *AdminStore) audited(k *call, a *protocol.Audit, change func(companion) error) error {
	if a == nil {
		return change(nil)
	}
	if !s.noTransactions {
		return change(s.auditWrite(a))
	}
	planned := *a
	planned.Unconfirmed = true
	isNew, err := s.putAudit(k, &planned)
	if err != nil {
		return err
	}
	// If the writes after the change fail, the entry stays unconfirmed.
	err = change(nil)
	switch {
	case err == nil:
		_, _ = s.putAudit(k, a)
	case isNew && !k.maybe:
		s.deleteUnconfirmed(k, &planned)
	}
	return err
}

// putAudit writes an entry, over the same one that is unconfirmed. An unconfirmed one is written
// only where there is none; isNew reports whether it was. What became of it plays no part in
// whether the change of the call may have been made.
func (s *AdminStore) putAudit(k *call, a *protocol.Audit) (isNew bool, err error) {
	own := *k
	in := &dynamodb.PutItemInput{TableName: s.table, Item: encodeAudit(a)}
	if a.Unconfirmed {
		in.ConditionExpression = aws.String(ifAbsent)
	}
	err = own.do(true, own.attempt, func(ctx context.Context) error {
		_, err := s.client.PutItem(ctx, in, s.optFns...)
		return err
	})
	if isConditionFailed(err) {
		return false, nil
	}
	return err == nil, err
}

// deleteUnconfirmed deletes the entry of a change that was not made, as far as it can.
func (s *AdminStore) deleteUnconfirmed(k *call, a *protocol.Audit) {
	own := *k
	in := &dynamodb.DeleteItemInput{
		TableName: s.table, Key: itemKey(a.ID, auditSK(a)), ConditionExpression: aws.String(ifUnconfirmed),
	}
	_ = own.do(true, own.attempt, func(ctx context.Context) error {
		_, err := s.client.DeleteItem(ctx, in, s.optFns...)
		return err
	})
}

// auditWrite is the entry's part of a transaction.
func (s *AdminStore) auditWrite(a *protocol.Audit) companion {
	it := encodeAudit(a)
	put := types.TransactWriteItem{
		Put: &types.Put{TableName: s.table, Item: it, ReturnValuesOnConditionCheckFailure: allOld},
	}
	return &txWrite{s: s.Store, id: a.ID, actions: []action{{kind: "Audit", table: s.table, item: it, write: put}}}
}

// Note writes an audit entry about what is no record, such as a queue. It replaces that with
// the same ID, time and Entry, unless it is Unconfirmed: a late try of what was planned does not
// replace what was done.
func (s *AdminStore) Note(ctx context.Context, a protocol.Audit) error {
	k := s.retry.begin(ctx, "Note")
	defer k.end()
	_, err := s.putAudit(k, &a)
	return err
}
