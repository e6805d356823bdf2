package idem

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// beginClaimed begins the attempt of a claim that was sent at the time and is written.
func (x *execution) beginClaimed(ctx context.Context, c protocol.Claim, sent time.Time) *attempt {
	a := &attempt{key: x.call.Key, rec: c.Record, until: sent.Add(x.engine.opts.Lease)}
	a.journal.room.extra = x.engine.traits.StepExtra
	a.journal.inherit(c.Record.Steps)
	a.reference.inherit(c.Record.Ref)
	kind := notice.Claimed
	if c.Seen != "" {
		kind = notice.TookOver
	}
	x.notify(ctx, kind, notice.Notice{Attempt: a.rec.Attempt, State: InProgress})
	return a
}

// beginAtomic begins an attempt in atomic mode, over the record that was seen. One that
// it replaces as a whole is as good as absent: its state says nothing of this attempt.
func (x *execution) beginAtomic(c protocol.Claim, seen *Record) *attempt {
	a := &attempt{key: x.call.Key, rec: c.Record, unwritten: &c, later: x.later}
	a.reference.inherit(c.Record.Ref)
	a.seenState = Absent
	if seen != nil && !c.Replace {
		a.seenState = seen.State
	}
	return a
}
