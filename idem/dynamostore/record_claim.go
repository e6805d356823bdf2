package dynamostore

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Acquire implements [idem.Store]: a PutItem where there is no record or an
// expired one is replaced, an UpdateItem for a takeover.
func (s *Store) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	k := s.retry.beginSparing(ctx, "Acquire")
	defer k.end()
	rec := &c.Record
	if err := s.mayClaim(k, &c); err != nil {
		return err
	}
	switch {
	case c.Seen == "":
		next := *rec
		next.Seen = ""
		old, err := s.put(k, s.encode(&next), ifAbsent, nil)
		return concludeClaim(old, err, rec.Write)
	case c.Replace:
		next := *rec
		next.UpdatedAt, next.Seen = now, c.Seen
		old, err := s.replace(k, s.encode(&next), c.Seen)
		return concludeClaim(old, err, rec.Write)
	}
	u := newUpdate(takeoverSet, 5, 5)
	if s.sealer != nil {
		u.yesOr(schema.Sealed, true)
	}
	u.claim(rec, protocol.InProgress, rec.Write, now)
	u.str(":own", rec.Owner)
	u.str(":seen", c.Seen)
	u.expires(rec.ExpiresAt)
	u.yesOr(schema.Uncertain, rec.Uncertain)
	if rec.Due.IsZero() {
		u.drop(leftAll + "," + leftOpen)
	} else {
		u.watches(rec.ID, watchSet, rec.Due)
		u.drop(leftAll + "," + schema.OpenSince + "," + leftSweep)
	}
	old, err := s.update(k, rec.ID, u, ifSeen)
	return concludeClaim(old, err, rec.Write)
}

// replace puts a whole record over the one that was seen.
func (s *Store) replace(k *call, it item, seen string) (item, error) {
	return s.put(k, it, ifSeen, seenValue(seen))
}

func seenValue(write string) item {
	return item{":seen": &types.AttributeValueMemberS{Value: write}}
}

// concludeClaim is [conclude] for a claim: one that was taken over has landed too, and
// is no leave to run.
func concludeClaim(old item, err error, write string) error {
	if writeOf(old) != write {
		write = ""
	}
	return conclude(old, err, write)
}

// claim gives what every claim over a record writes.
func (u *update) claim(rec *protocol.Record, state protocol.State, write string, now time.Time) {
	u.str(":to", string(state))
	u.str(":id", write)
	u.num(":lease_until", millis(rec.LeaseUntil))
	u.num(":now", millis(now))
	u.yesOr(schema.Repeatable, rec.Repeat == protocol.Repeatable)
	u.numOr(schema.Attempt, int64(rec.Attempt), defaultAttempt)
	u.numOr(schema.Retention, seconds(rec.Retention), defaultRetention)
	u.numOr(schema.Unsettled, int64(rec.Unsettled), 0)
	u.strOr(schema.Ref, rec.Ref)
}

func (u *update) expires(at time.Time) {
	if at.IsZero() {
		u.drop(schema.ExpiresAt)
		return
	}
	u.add(",expires_at=:exp")
	u.num(":exp", expiry(at))
}

// opens puts the record into the index of what is due, among the questions.
func (u *update) opens(id, set string) {
	u.add(set)
	u.str(":open_shard", questionShard(id))
}

// watches puts a claim into the index, unless the record is there already.
func (u *update) watches(id, set string, due time.Time) {
	u.add(set)
	u.str(":open_shard", claimShard(id))
	u.num(":due", millis(due))
}

// Withdraw implements [idem.Store]: one UpdateItem that creates or changes.
func (s *Store) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	k := s.retry.begin(ctx, "Withdraw")
	defer k.end()
	rec := &w.Claim.Record
	old, err := inForm(len(rec.Steps) > 0, w.Write, func(steps bool) (item, error) {
		u, cond := s.withdrawal(w, now, steps)
		return s.update(k, rec.ID, u, cond)
	}, func(old item) (bool, bool) { return hasSteps(old), !w.Claim.Replace })
	return conclude(old, err, w.Write)
}

// withdrawal makes the form for a record that will have steps, or will have
// none: it is an open question, or it expires.
func (s *Store) withdrawal(w protocol.Withdrawal, now time.Time, steps bool) (*update, string) {
	rec := &w.Claim.Record
	u := newUpdate(withdrawSet, 12, 8)
	u.claim(rec, protocol.Released, w.Write, now)
	u.str(":new_owner", w.Owner)
	u.str(":own", rec.Owner)
	u.str(":is", string(protocol.InProgress))
	u.str(":fp", string(rec.Fingerprint))
	u.num(":created_at", millis(rec.CreatedAt))
	u.strOr(schema.Value, rec.Value)
	u.strOr(schema.Codec, rec.Codec)
	u.strOr(schema.Seen, w.Claim.Seen)
	held := ifHeld
	if !w.Uncertain {
		// Else a question that another call has opened stays open.
		held = ifHeldOrParked
		u.str(":unknown", string(protocol.Unknown))
	}
	cond := ifAbsent + " OR " + held
	if w.Claim.Seen != "" {
		cond = ifSeen + " OR " + held
	}
	switch {
	case w.Claim.Replace && !steps:
		u.add(createdAnew)
		u.drop(schema.Steps + "," + schema.Ticket + "," + schema.Sealed)
		u.expires(w.ExpiresAt)
	case w.Claim.Replace:
		u.add(createdAnew + ",steps=:steps")
		u.drop(schema.Ticket + "," + schema.Sealed)
		u.item[":steps"] = encodeSteps(rec.Steps)
		u.expires(time.Time{})
	case !steps:
		u.add(createdKept)
		cond = "(" + cond + ")" + ifNoSteps
		u.expires(w.ExpiresAt)
	default:
		u.add(createdKept)
		cond = "(" + cond + ")" + ifSteps
		u.expires(time.Time{})
	}
	u.yesOr(schema.Uncertain, w.Uncertain)
	if steps {
		u.opens(rec.ID, openSet)
		u.drop(leftSweep)
	} else {
		u.drop(leftOpen)
	}
	u.drop(leftAll)
	return u, cond
}

// Extend implements [idem.Store]: one UpdateItem, and a second one only if a
// step, or another call's park, took the expiry away since.
func (s *Store) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	k := s.retry.begin(ctx, "Extend")
	defer k.end()
	old, err := inForm(!e.ExpiresAt.IsZero(), "", func(expires bool) (item, error) {
		u := newUpdate(extendSet, 4, 3)
		u.str(":own", e.Owner)
		u.str(":is", string(protocol.InProgress))
		u.str(":id", e.Write)
		u.num(":lease_until", millis(e.LeaseUntil))
		u.num(":now", millis(now))
		if expires {
			u.expires(e.ExpiresAt)
			return s.update(k, e.ID, u, ifHeld+ifEarlier+ifNoSteps)
		}
		u.str(":unknown", string(protocol.Unknown))
		return s.update(k, e.ID, u, ifHeldOrParked+ifEarlier)
	}, func(old item) (expires, ok bool) {
		return false, hasSteps(old) || text(old, schema.State) == string(protocol.Unknown)
	})
	if err != errRefused || old == nil {
		return conclude(old, err, "")
	}
	rec, err := decode(old)
	if err != nil {
		return err
	}
	if rec.HeldBy(e.Owner) && millis(rec.LeaseUntil) >= millis(e.LeaseUntil) {
		return nil
	}
	return &protocol.ConflictError{Existing: rec}
}

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
		return protocol.Unknown, isHeld(old, r.Owner) && text(old, schema.State) == string(protocol.Unknown) &&
			text(old, schema.RefWrite) == r.Seen
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
