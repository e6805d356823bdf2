package dynamostore

import (
	"context"
	"fmt"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Requeue has a dead letter sent again, from its first try on, and keeps who did so. It returns an
// error that matches [protocol.ErrNotFound] if there is no such dead letter any more as it was
// read.
func (s *AdminStore) Requeue(ctx context.Context, e *outbox.Entry, a protocol.Audit) error {
	if e.Unreadable != nil {
		return e.Unreadable
	}
	k := s.retry.begin(ctx, "Requeue")
	defer k.end()
	u := newUpdate("SET in_state = :state, open_shard = :open_shard, open_due = :at REMOVE tries, reason, dead_at", 5, 2)
	u.str(":state", schema.OutboxNew)
	u.str(":open_shard", outboxShard(schema.OutboxShard, e.ID, &e.Message))
	u.item[":at"] = livePlace(e.Destination, e.Created, e.Number)
	u.num(":created", millis(e.Created))
	u.str(":dead", schema.OutboxDead)
	u.num(":tries", int64(e.Tries))
	u.str(":reason", e.Reason)
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
	err := s.audited(k, &a, func(tx companion) error {
		old, err := s.updateWith(k, tx, messageKey(e.Ref()), "requeue "+a.Entry, u, ifDead)
		if err == errRefused && landed(old) {
			return nil
		}
		return err
	})
	if err != errRefused {
		return err
	}
	return fmt.Errorf("%w: message %s of record %q is no dead letter any more, or has died once more since it was read",
		protocol.ErrNotFound, e.ID, e.Record)
}
