package dynamostore

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// RecordReference implements [idem.Store]: one UpdateItem, and a second one for a record
// that was parked before it.
func (s *Store) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	k := s.retry.begin(ctx, "RecordReference")
	defer k.end()
	old, err := inForm(protocol.InProgress, r.Write, func(state protocol.State) (item, error) {
		u := newUpdate(referenceSet, 4, 1)
		u.str(":own", r.Owner)
		u.str(":is", string(state))
		u.str(":id", r.Write)
		u.str(":ref", r.Ref)
		u.num(":now", millis(now))
		return s.update(k, r.ID, u, ifHeld+ifNotMine)
	}, func(old item) (protocol.State, bool) {
		return protocol.Unknown, text(old, schema.Owner) == r.Owner && text(old, schema.State) == string(protocol.Unknown)
	})
	if err == errRefused && writeOf(old) == r.Write {
		return nil
	}
	return conclude(old, err, "")
}
