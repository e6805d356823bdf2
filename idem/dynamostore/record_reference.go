package dynamostore

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// RecordReference implements [idem.Store]: one UpdateItem, and a second one for a record
// that was parked before it.
func (s *Store) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	k := s.retry.begin(ctx, "RecordReference")
	defer k.end()
	if r.Ref == "" {
		return k.fail(errors.New("an empty reference"))
	}
	old, err := inForm(protocol.InProgress, "", func(state protocol.State) (item, error) {
		u := newUpdate(referenceSet, 4, 1)
		u.str(":own", r.Owner)
		u.str(":is", string(state))
		u.str(":id", r.Write)
		u.str(":ref", r.Ref)
		u.num(":now", millis(now))
		if r.Seen == "" {
			return s.update(k, r.ID, u, ifHeld+ifNoRef)
		}
		u.str(":seen", r.Seen)
		return s.update(k, r.ID, u, ifHeld+ifRef)
	}, func(old item) (protocol.State, bool) {
		return protocol.Unknown, isHeld(old, r.Owner) && text(old, schema.State) == string(protocol.Unknown) && text(old, schema.RefWrite) == r.Seen
	})
	if err == errRefused && isHeld(old, r.Owner) && text(old, schema.RefWrite) == r.Write {
		return nil
	}
	return conclude(old, err, "")
}

// isHeld reports whether the owner's attempt may still end the record.
func isHeld(it item, owner string) bool {
	state := protocol.State(text(it, schema.State))
	return text(it, schema.Owner) == owner && (state == protocol.InProgress || state == protocol.Unknown)
}
