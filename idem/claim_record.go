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
	rec.LeaseUntil = protocol.RoundUp(rec.LeaseUntil, time.Millisecond)
	rec.Write = rec.Owner
	return rec.Over(seen, do, op.Watch, x.engine.opts.Margin)
}
