package dynamostore

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
)

// outboxItem is the item of the n-th message (from 0) that a record's operation
// publishes, to be put without a condition in the operation's transaction. It
// depends on its arguments alone. Where the record has expired and the operation
// runs anew, it replaces the message of the earlier run, which has the same id.
func outboxItem(recordID string, n int, m outbox.Message, now time.Time) (map[string]types.AttributeValue, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	id := outbox.MessageID(recordID, n)
	v := newValues(8, 4)
	v.str(schema.PK, recordID)
	v.str(schema.SK, schema.OutboxSK+id)
	v.num(schema.Version, schema.OutboxItemVersion)
	v.str(schema.State, schema.OutboxNew)
	v.str(schema.Destination, m.Destination)
	v.num(schema.Number, int64(n))
	v.bytes(schema.Body, m.Body)
	v.num(schema.CreatedAt, millis(now))
	v.str(schema.Stuck, outboxShard(schema.OutboxShard, id, &m))
	v.num(schema.StuckAt, millis(now))
	if m.OrderingKey != "" {
		v.str(schema.OrderingKey, m.OrderingKey)
	}
	if m.Type != "" {
		v.str(schema.MessageType, m.Type)
	}
	if m.ContentType != "" {
		v.str(schema.ContentType, m.ContentType)
	}
	if len(m.Attributes) > 0 {
		tags := newValues(len(m.Attributes), 0)
		for name, value := range m.Attributes {
			tags.str(name, value)
		}
		v.item[schema.Tags] = &types.AttributeValueMemberM{Value: tags.item}
	}
	return v.item, nil
}

// outboxShard is the message's partition of the index: that of its ordering key,
// if it has one, so that whoever reads a shard sees all that are in order with it.
func outboxShard(prefix, id string, m *outbox.Message) string {
	if m.OrderingKey != "" {
		id = m.Destination + "\x00" + m.OrderingKey
	}
	return prefix + shard(id)
}
