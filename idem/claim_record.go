package idem

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// newClaim makes a claim on the record that was seen; nil stands for none.
func (x *execution) newClaim(seen *Record, do protocol.Action) protocol.Claim {
	now := x.engine.now()
	op := &x.call.Key.op
	rec := Record{
		ID: x.call.Key.id, State: InProgress, Repeat: op.Repeat,
		Fingerprint: x.call.Fingerprint, Codec: x.call.Codec, Owner: newID(), Attempt: 1,
		LeaseUntil: x.kill, Retention: op.retention(), CreatedAt: now, UpdatedAt: now,
	}
	if op.Values == KeepValues {
		rec.Value = x.call.Key.value
	}
	if x.kill.IsZero() {
		rec.LeaseUntil = now.Add(x.engine.opts.Lease)
	}
	rec.LeaseUntil = ceil(rec.LeaseUntil, time.Millisecond)
	rec.Write = rec.Owner
	return x.engine.claimOver(rec, seen, do, op.Watch)
}

// claimOver makes the claim that writes rec over the record that was seen.
func (e *Engine) claimOver(rec Record, seen *Record, do protocol.Action, w Watch) protocol.Claim {
	c := protocol.Claim{}
	if seen != nil {
		c.Seen = seen.Write
		rec.Attempt = seen.Attempt + 1
	}
	if do == protocol.DoTakeOver {
		rec.Repeat = protocol.Stricter(rec.Repeat, seen.Repeat)
		rec.Value, rec.Codec, rec.CreatedAt, rec.Ticket, rec.Steps = seen.Value, seen.Codec, seen.CreatedAt, seen.Ticket, seen.Steps
		rec.Sealed = seen.Sealed
		// A lapsed attempt may have taken effect, whatever this one will say.
		rec.Uncertain = seen.Uncertain || seen.State == InProgress
		if rec.Uncertain || len(seen.Steps) > 0 {
			rec.Ref = seen.Ref
		}
		if rec.Uncertain {
			rec.Unsettled = seen.Unsettled
		}
		if seen.State == InProgress {
			rec.Unsettled++
		}
	}
	rec.ExpiresAt, rec.Due = time.Time{}, time.Time{}
	// Observers respect the lease until then.
	lapses := rec.LeaseUntil.Add(e.opts.Margin)
	if w.watches(rec.Repeat) {
		rec.Due = lapses
	} else if (w != LeaveAbandonedUnnoticed || rec.Accepted()) && len(rec.Steps) > 0 && !seen.Due.IsZero() {
		// Work that is half done stays in the index, at its place: moving it costs a write unit
		// more than that a sweep now and then meets the claim.
		rec.Due = earlier(seen.Due, lapses)
	} else if rec.Repeat == Repeatable && len(rec.Steps) == 0 {
		rec.ExpiresAt = ceil(rec.LeaseUntil.Add(rec.Retention), time.Second)
	}
	c.Replace = do == protocol.DoReplace
	c.Record = rec
	return c
}
