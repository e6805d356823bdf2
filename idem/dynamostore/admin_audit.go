package dynamostore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// auditSK sorts the changes of a record by time.
func auditSK(a *protocol.Audit) string {
	return fmt.Sprintf("%s%013d#%s", schema.AuditSK, millis(a.At), a.Entry)
}

// encodeAudit makes the item of a change: it sorts by time in the partition of its record, and by time
// in the index.
func encodeAudit(a *protocol.Audit) item {
	v := newValues(10, 3)
	v.str(schema.PK, a.ID)
	v.str(schema.SK, auditSK(a))
	v.str(schema.AuditWho, a.Who)
	v.str(schema.AuditWhy, a.Why)
	v.optStr(schema.AuditTool, a.Tool)
	v.str(schema.AuditChange, string(a.Change))
	v.optStr(schema.AuditFrom, string(a.From))
	v.optStr(schema.AuditTo, string(a.To))
	v.num(schema.AuditAttempt, int64(a.Attempt))
	v.optStr(schema.AuditRef, a.Ref)
	if len(a.Steps) > 0 {
		steps := make(item, len(a.Steps))
		for name, verdict := range a.Steps {
			steps[name] = &types.AttributeValueMemberS{Value: string(verdict)}
		}
		v.item[schema.AuditSteps] = &types.AttributeValueMemberM{Value: steps}
	}
	v.optNum(schema.AuditUntil, expiry(a.Until))
	v.optStr(schema.AuditWhat, a.What)
	v.optYes(schema.AuditUnconfirmed, a.Unconfirmed)
	v.optNum(schema.ExpiresAt, expiry(a.ExpiresAt))
	v.str(schema.OpenShard, schema.AuditShard+shardName(hash(a.ID)%schema.AuditShardCount))
	v.num(schema.OpenDue, millis(a.At))
	return v.item
}

func decodeAudit(it item) (protocol.Audit, error) {
	d := &decoder{item: it}
	d.id = d.str(schema.PK)
	a := protocol.Audit{
		ID: d.id, At: d.time(schema.OpenDue), Who: d.optStr(schema.AuditWho), Why: d.optStr(schema.AuditWhy),
		Tool: d.optStr(schema.AuditTool), Change: protocol.Change(d.str(schema.AuditChange)),
		From: protocol.State(d.optStr(schema.AuditFrom)), What: d.optStr(schema.AuditWhat),
		To:      protocol.State(d.optStr(schema.AuditTo)),
		Attempt: int(d.optNum(schema.AuditAttempt, 1<<31-1)), Ref: d.optStr(schema.AuditRef),
		Unconfirmed: d.flag(schema.AuditUnconfirmed),
	}
	if steps := d.members(schema.AuditSteps); len(steps) > 0 {
		a.Steps = make(map[string]protocol.StepVerdict, len(steps))
		for name := range steps {
			a.Steps[name] = protocol.StepVerdict(text(steps, name))
		}
	}
	a.Until, a.ExpiresAt = d.expiry(schema.AuditUntil), d.expiry(schema.ExpiresAt)
	ms, entry, _ := strings.Cut(strings.TrimPrefix(d.str(schema.SK), schema.AuditSK), "#")
	a.Entry = entry
	if n, err := strconv.ParseInt(ms, 10, 64); err == nil && a.At.IsZero() {
		a.At = time.UnixMilli(n).UTC() // of one that is damaged
	}
	return a, d.err
}

// AuditOf implements [protocol.AdminStore]: one consistent Query.
func (s *AdminStore) AuditOf(ctx context.Context, id, page string) (protocol.AuditPage, error) {
	out, err := s.queryPartition(ctx, "AuditOf", id, schema.AuditSK, page, nil)
	if err != nil {
		return protocol.AuditPage{}, err
	}
	return auditPage(out.Items, text(out.LastEvaluatedKey, schema.SK)), nil
}

// queryPartition reads a page of those items of a record's partition whose sort keys begin so. A page is the
// sort key of the last item of the page before. Of the items it reads the attributes, or all.
func (s *AdminStore) queryPartition(ctx context.Context, op, id, prefix, page string,
	attributes []string) (*dynamodb.QueryOutput, error) {
	vals := newValues(2, 0)
	vals.str(":pk", id)
	vals.str(":prefix", prefix)
	in := &dynamodb.QueryInput{
		TableName: s.table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("pk=:pk AND begins_with(sk,:prefix)"),
		ExpressionAttributeValues: vals.item, Limit: aws.Int32(maxBatchGet),
	}
	if len(attributes) > 0 {
		in.ExpressionAttributeNames = make(map[string]string, len(attributes))
		for _, name := range attributes { // number is a reserved word
			in.ExpressionAttributeNames["#"+name] = name
		}
		in.ProjectionExpression = aws.String("#" + strings.Join(attributes, ",#"))
	}
	if page != "" {
		if !strings.HasPrefix(page, prefix) || !isKey(id, page) {
			return nil, noCursor(page)
		}
		in.ExclusiveStartKey = itemKey(id, page)
	}
	k := s.retry.begin(ctx, op)
	defer k.end()
	var out *dynamodb.QueryOutput
	err := k.do(false, k.attempt, func(ctx context.Context) (err error) {
		out, err = s.client.Query(ctx, in, s.optFns...)
		return err
	})
	return out, err
}

// AuditBetween implements [protocol.AdminStore]: a Query on the index, and a consistent
// BatchGetItem for what it lists.
func (s *AdminStore) AuditBetween(ctx context.Context, shard int, from, to time.Time,
	page string) (protocol.AuditPage, error) {
	if shard < 0 || shard >= schema.AuditShardCount {
		return protocol.AuditPage{}, fmt.Errorf("dynamostore: AuditBetween: there is no shard %d", shard)
	}
	since, until := millis(from), millis(to)-1
	if until < since {
		return protocol.AuditPage{}, nil // which a Query refuses
	}
	name := schema.AuditShard + shardName(uint32(shard))
	start, err := parseCursor(name, page, decimal(since), decimal(until))
	if err != nil {
		return protocol.AuditPage{}, err
	}
	k := s.retry.begin(ctx, "AuditBetween")
	defer k.end()
	out, err := s.queryIndex(k, s.client, name, decimal(since), decimal(until), start, maxBatchGet)
	if err != nil || len(out.Items) == 0 {
		return protocol.AuditPage{}, err
	}
	keys := make([]map[string]types.AttributeValue, len(out.Items))
	for i, it := range out.Items {
		keys[i] = item{schema.PK: it[schema.PK], schema.SK: it[schema.SK]}
	}
	found := map[string]item{}
	if err = s.batchGet(k, keys, func(it item) { found[text(it, schema.PK)+text(it, schema.SK)] = it }); err != nil {
		return protocol.AuditPage{}, err
	}
	var items []map[string]types.AttributeValue
	for _, it := range out.Items {
		if whole := found[text(it, schema.PK)+text(it, schema.SK)]; whole != nil {
			items = append(items, whole)
		}
	}
	return auditPage(items, formatCursor(out.LastEvaluatedKey)), nil
}

func auditPage(items []map[string]types.AttributeValue, next string) protocol.AuditPage {
	p := protocol.AuditPage{Next: next}
	for _, it := range items {
		a, err := decodeAudit(it)
		if err != nil {
			a.Change, a.Why, a.Unconfirmed = protocol.ChangeUnreadable, err.Error(), true
		}
		p.Entries = append(p.Entries, a)
	}
	return p
}

// audited makes a change from outside together with its audit entry, if it has one: in one
// transaction, whose part for the entry is passed to change. Without transactions it makes three writes:
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
