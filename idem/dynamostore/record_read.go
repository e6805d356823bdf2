package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Get implements [idem.Store]: one consistent GetItem.
func (s *Store) Get(ctx context.Context, id string) (*protocol.Record, error) {
	k := s.retry.beginSparing(ctx, "Get")
	defer k.end()
	it, err := s.get(k, key(id))
	if it == nil || err != nil {
		return nil, err
	}
	return decode(it)
}

// get reads an item consistently; nil if there is none.
func (s *Store) get(c *call, key item) (item, error) {
	in := &dynamodb.GetItemInput{TableName: s.table, Key: key, ConsistentRead: aws.Bool(true)}
	var out *dynamodb.GetItemOutput
	err := c.do(false, c.attempt, func(ctx context.Context) (err error) {
		out, err = s.client.GetItem(ctx, in, s.optFns...)
		return err
	})
	if err != nil || len(out.Item) == 0 {
		return nil, err
	}
	return out.Item, nil
}

// fullReply is how many items of any size fit into a reply: it holds 16 MB, and an item 400 KB. One that
// has fewer items, and leaves keys unprocessed, is that of a table that is throttled.
const fullReply = 40

// batchGet reads items consistently, at most a hundred, and passes on those that there are. What is
// left unprocessed is asked for again: at once after a full reply, else like a try that was throttled.
func (s *Store) batchGet(k *call, keys []map[string]types.AttributeValue, found func(item)) error {
	for len(keys) > 0 {
		err := k.do(false, partTime*k.attempt, func(ctx context.Context) error {
			out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
				RequestItems: map[string]types.KeysAndAttributes{*s.table: {Keys: keys, ConsistentRead: aws.Bool(true)}},
			}, s.optFns...)
			if err != nil {
				return err
			}
			got := 0
			for _, items := range out.Responses { // of the one table, whatever it is called there
				got += len(items)
				for _, it := range items {
					found(it)
				}
			}
			keys = nil
			for _, left := range out.UnprocessedKeys {
				keys = append(keys, left.Keys...)
			}
			if len(keys) > 0 && got < fullReply {
				return errUnprocessed
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// queryIndex reads one page of a part of a shard of the index: as many entries as a reply holds, with a limit
// of zero.
func (s *Store) queryIndex(
	k *call, client OutboxClient, shard, since, until string, from item, limit int,
) (out *dynamodb.QueryOutput, err error) {
	vals := newValues(1, 2)
	vals.str(":open_shard", shard)
	vals.item[":since"] = &types.AttributeValueMemberN{Value: since}
	vals.item[":until"] = &types.AttributeValueMemberN{Value: until}
	in := &dynamodb.QueryInput{
		TableName: s.table, IndexName: aws.String(schema.OpenIndex), KeyConditionExpression: aws.String(dueBetween),
		ExpressionAttributeValues: vals.item, ExclusiveStartKey: from,
	}
	if limit > 0 {
		in.Limit = aws.Int32(int32(min(limit, maxPage)))
	}
	err = k.do(false, k.attempt, func(ctx context.Context) (err error) {
		out, err = client.Query(ctx, in, s.optFns...)
		return err
	})
	return out, err
}

// Result implements [idem.Store]: no call, or one consistent BatchGetItem if the
// result lies in parts. It is nil for a record that is not completed.
func (s *Store) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	if rec == nil || rec.State != protocol.Completed {
		return nil, nil
	}
	return s.result(ctx, s.retry.beginSparing, "Result", target{id: rec.ID}, rec.Owner, rec.Body)
}

// StepResult implements [idem.Store]: no call, or one consistent BatchGetItem if
// the result lies in parts.
func (s *Store) StepResult(ctx context.Context, rec *protocol.Record, name string) ([]byte, error) {
	if rec == nil {
		return nil, nil
	}
	step := rec.Steps[name]
	if step.Write == "" || step.Begun || step.NotExecuted || step.Failure != nil {
		return nil, unreadable(rec.ID, "its step %q has no result", name)
	}
	return s.result(ctx, s.retry.begin, "StepResult", target{rec.ID, name}, step.Write, step.Body)
}

// result reads what the writer stored.
func (s *Store) result(ctx context.Context, begin func(context.Context, string) *call, op string, t target,
	writer string, body protocol.Body) ([]byte, error) {
	stored := body.Data
	var err error
	if body.Parts > 0 {
		k := begin(ctx, op)
		defer k.end()
		if stored, err = s.getParts(k, t.id, writer, body); err != nil {
			return nil, err
		}
	}
	if body, stored, err = s.open(ctx, op, t, body, stored); err != nil {
		return nil, err
	}
	b, err := s.codec.unpack(body, stored)
	if err != nil {
		return nil, unreadable(t.id, "%v", err)
	}
	return b, nil
}
