package dynamostore

import (
	"context"
	"fmt"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// messageHead is what is read of a message to show it: nothing that its publisher may have made large.
var messageHead = []string{schema.PK, schema.SK, schema.Version, schema.State, schema.Destination,
	schema.OrderingKey, schema.MessageType, schema.ContentType, schema.Number, schema.CreatedAt, schema.Tries,
	schema.NextTry, schema.Reason, schema.DispatchedAt, schema.SentID, schema.Resent}

// Messages lists the messages that a record's operation has published, in all lives of its key, as long
// as they are stored, without their bodies, their attributes and After: one consistent Query, of 100 messages
// at most and of 1 MB with their bodies. The first page is "". It returns the next page, which is empty at
// the end.
func (s *AdminStore) Messages(ctx context.Context, record, page string) ([]*outbox.Entry, string, error) {
	out, err := s.queryPartition(ctx, "Messages", record, schema.OutboxSK, page, messageHead)
	if err != nil {
		return nil, "", err
	}
	entries := make([]*outbox.Entry, len(out.Items))
	for i, it := range out.Items {
		entries[i] = decodeEntry(it, false)
	}
	return entries, text(out.LastEvaluatedKey, schema.SK), nil
}

// Requeue has a dead letter, or a message that was sent, sent again, from its first try on, and keeps who
// did so. It returns an error that matches [protocol.ErrNotFound] if there is no such message any more as
// it was read.
func (s *AdminStore) Requeue(ctx context.Context, e *outbox.Entry, a protocol.Audit) error {
	if e.Unreadable != nil {
		return e.Unreadable
	}
	k := s.retry.begin(ctx, "Requeue")
	defer k.end()
	u := newUpdate("SET in_state = :state, open_shard = :open_shard, open_due = :at, resent = :again", 5, 4)
	u.drop("tries, reason, dead_at, dispatched_at, expires_at")
	u.str(":state", schema.OutboxNew)
	u.str(":open_shard", outboxShard(schema.OutboxShard, e.ID, &e.Message))
	u.item[":at"] = livePlace(e.Destination, e.Created, e.Number)
	u.num(":created", millis(e.Created))
	u.num(":again", int64(e.Resent)+1)
	cond := ifDead
	if e.State == outbox.Dispatched {
		cond = ifSent
		u.str(":sent", schema.OutboxDispatched)
		u.num(":sent_at", millis(e.SentAt))
	} else {
		u.str(":dead", schema.OutboxDead)
		u.num(":tries", int64(e.Tries))
		u.str(":reason", e.Reason)
	}
	cond += u.ifAsRead(e)
	// An earlier try that was applied has made its own condition false, and the relay may be at
	// the message by now. That it may take another's for its own does no harm: the message is
	// sent again.
	landed := func(old item) bool {
		if !k.maybe || old == nil {
			return false
		}
		now := decodeMessage(old)
		return now.Unreadable == nil && now.Created.Equal(e.Created) && now.Resent > e.Resent
	}
	err := s.audited(k, &a, func(tx companion) error {
		old, err := s.updateWith(k, tx, messageKey(e.Ref()), "requeue "+a.Entry, u, cond)
		if err == errRefused && landed(old) {
			return nil
		}
		return err
	})
	if err != errRefused {
		return err
	}
	return fmt.Errorf("%w: message %s of record %q is no longer as it was read, or waits to be sent",
		protocol.ErrNotFound, e.ID, e.Record)
}
