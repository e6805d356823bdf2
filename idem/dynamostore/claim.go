package dynamostore

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Acquire implements [idem.Store]: a PutItem where there is no record or an
// expired one is replaced, an UpdateItem for a takeover.
func (s *Store) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	k := s.retry.begin(ctx, "Acquire")
	defer k.end()
	rec := &c.Record
	switch {
	case c.Seen == "":
		next := *rec
		next.Seen = ""
		old, err := s.put(k, encode(&next), ifAbsent, nil, nil)
		return concludeClaim(old, err, rec.Write)
	case c.Replace:
		next := *rec
		next.UpdatedAt, next.Seen = now, c.Seen
		seen := newValues(1, 0)
		seen.str(":seen", c.Seen)
		old, err := s.put(k, encode(&next), ifSeen, seen.item, s.names.of(nWrite))
		return concludeClaim(old, err, rec.Write)
	}
	u := newUpdate(takeoverSet, 5, 5)
	u.names = s.names.of(takeoverNames | nResult | nSize | nError | nRef)
	u.claim(rec, protocol.InProgress, rec.Owner, rec.Write, now)
	u.str(":owner", rec.Owner)
	u.str(":seen", c.Seen)
	u.expires(rec.ExpiresAt)
	u.uncertain(rec.Uncertain)
	u.drop("#result, enc, #size, parts, rv, unavailable, #error, #ref, probes, open_shard, open_since")
	old, err := s.update(k, rec.ID, u, ifSeen)
	return concludeClaim(old, err, rec.Write)
}

// concludeClaim is [conclude] for a claim: one that was taken over has landed too, and
// is no leave to run.
func concludeClaim(old item, err error, write string) error {
	if text(old, schema.Write) != write {
		write = ""
	}
	return conclude(old, err, write)
}

// claim gives the values that every claim writes.
func (u *update) claim(rec *protocol.Record, state protocol.State, owner, write string, now time.Time) {
	u.str(":state", string(state))
	u.str(":repeat", rec.Repeat.String())
	u.str(":write", write)
	u.num(":attempt", int64(rec.Attempt))
	u.num(":lease_until", millis(rec.LeaseUntil))
	u.num(":retention", seconds(rec.Retention))
	u.num(":now", millis(now))
}

func (u *update) expires(at time.Time) {
	if at.IsZero() {
		u.drop("expires_at")
		return
	}
	u.add(", expires_at = :expires_at")
	u.num(":expires_at", expiry(at))
}

func (u *update) uncertain(yes bool) {
	if !yes {
		u.drop("uncertain")
		return
	}
	u.add(", uncertain = :yes")
	u.yes(":yes")
}

func (u *update) open(id string, yes bool) {
	if !yes {
		u.drop("open_shard, open_since")
		return
	}
	u.add(openSet)
	u.str(":open_shard", shard(id))
}

// Withdraw implements [idem.Store]: one UpdateItem that creates or changes.
func (s *Store) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	k := s.retry.begin(ctx, "Withdraw")
	defer k.end()
	rec := &w.Claim.Record
	steps := len(rec.Steps) > 0
	for n := 1; ; n++ {
		u, cond := s.withdrawal(w, now, steps)
		old, err := s.update(k, rec.ID, u, cond)
		if err == errRefused && !bears(old, w.Write) && !w.Claim.Replace && hasSteps(old) != steps && n < maxForms {
			steps = !steps
			continue
		}
		return conclude(old, err, w.Write)
	}
}

// withdrawal makes the form for a record that will have steps, or will have
// none: it is an open question, or it expires.
func (s *Store) withdrawal(w protocol.Withdrawal, now time.Time, steps bool) (*update, string) {
	rec := &w.Claim.Record
	u := newUpdate(withdrawSet, 12, 8)
	u.names = s.names.of(withdrawNames | nResult | nSize | nError | nRef)
	u.claim(rec, protocol.Released, w.Owner, w.Write, now)
	u.str(":new_owner", w.Owner)
	u.str(":owner", rec.Owner)
	u.str(":in_progress", string(protocol.InProgress))
	u.str(":fp", string(rec.Fingerprint))
	u.num(":v", schema.RecordVersion)
	u.num(":created_at", millis(rec.CreatedAt))
	if rec.Value != "" {
		u.add(", #value = :value")
		u.str(":value", rec.Value)
	} else {
		u.drop("#value")
	}
	if rec.Codec != "" {
		u.add(", codec = :codec")
		u.str(":codec", rec.Codec)
	} else {
		u.drop("codec")
	}
	held := ifRunning
	if !w.Uncertain {
		// Else a question that a twin has opened stays open.
		held = ifHeld
		u.str(":unknown", string(protocol.Unknown))
	}
	cond := ifAbsent + " OR " + held
	if w.Claim.Seen != "" {
		cond += " OR " + ifSeen
		u.add(", seen = :seen")
		u.str(":seen", w.Claim.Seen)
	} else {
		u.drop("seen")
	}
	switch {
	case w.Claim.Replace && !steps:
		u.add(createdAnew)
		u.drop("steps")
		u.expires(w.ExpiresAt)
	case w.Claim.Replace:
		u.add(createdAnew + ", steps = :steps")
		u.item[":steps"] = encodeSteps(rec.Steps)
		u.expires(time.Time{})
	case !steps:
		u.add(createdKept)
		cond = "(" + cond + ")" + ifNoSteps
		u.expires(w.ExpiresAt)
	case len(rec.Steps) > 0:
		// A record that went meanwhile is made again with the steps that were read.
		u.add(createdKept + ", steps = if_not_exists(steps, :steps)")
		u.item[":steps"] = encodeSteps(rec.Steps)
		u.expires(time.Time{})
	default:
		u.add(createdKept)
		cond = "(" + cond + ")" + ifSteps
		u.expires(time.Time{})
	}
	u.uncertain(w.Uncertain)
	u.open(rec.ID, steps)
	u.drop("#result, enc, #size, parts, rv, unavailable, #error, #ref, probes")
	return u, cond
}

// Extend implements [idem.Store]: one UpdateItem, and a second one only if a
// step took the expiry away since.
func (s *Store) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	k := s.retry.begin(ctx, "Extend")
	defer k.end()
	for expires := !e.ExpiresAt.IsZero(); ; expires = false {
		u := newUpdate(extendSet, 3, 4)
		u.names = s.names.of(extendNames)
		u.str(":owner", e.Owner)
		u.str(":in_progress", string(protocol.InProgress))
		u.str(":write", e.Write)
		u.num(":v", schema.RecordVersion)
		u.num(":lease_until", millis(e.LeaseUntil))
		u.num(":now", millis(now))
		cond := ifRunning + ifEarlier
		if expires {
			cond += ifNoSteps
			u.expires(e.ExpiresAt)
		}
		old, err := s.update(k, e.ID, u, cond)
		if err != errRefused || old == nil {
			return conclude(old, err, "")
		}
		if expires && hasSteps(old) {
			continue
		}
		rec, err := decode(old)
		if err != nil {
			return err
		}
		if rec.Owner == e.Owner && rec.State == protocol.InProgress && millis(rec.LeaseUntil) >= millis(e.LeaseUntil) {
			return nil
		}
		return &protocol.ConflictError{Existing: rec}
	}
}
