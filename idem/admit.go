package idem

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// admit asks the operation's limit before a claim over the record that was seen. A record that is
// open has its place already.
func (x *execution) admit(ctx context.Context, seen *Record) error {
	l, e := x.call.Key.op.Limit, x.engine
	if l == nil || seen != nil && (seen.State == InProgress || seen.State == Pending) {
		return nil
	}
	a := protocol.Admission{
		Store: e.store, Now: e.now, ID: x.call.Key.id, Attempt: 1, New: !x.counted,
		Claiming: e.opts.ClaimBudget + e.opts.Margin, Fence: x.fenceClaims,
	}
	if seen != nil {
		a.Attempt = seen.Attempt + 1
		a.New = a.New && seen.Expired(e.now())
	}
	err := l.Admit(ctx, a)
	if err == nil {
		x.counted, x.took = x.counted || a.New, a.Attempt
	}
	return err
}

// giveBack gives back the place that the call took to claim the record as an attempt, if the record
// is closed since.
func (x *execution) giveBack(ctx context.Context, rec *Record, attempt int) {
	if attempt > 0 && rec != nil && rec.Attempt >= attempt {
		x.closed(ctx, rec.State, attempt)
	}
}

// fenceClaims is [protocol.Admission.Fence]: it does what a call would that claims the record and
// takes that back.
func (x *execution) fenceClaims(ctx context.Context, id string, seen *Record) (bool, error) {
	e, op, now := x.engine, &x.call.Key.op, x.engine.now()
	rec := Record{
		ID: id, State: InProgress, Repeat: op.Repeat, Fingerprint: x.call.Fingerprint, Codec: x.call.Codec,
		Owner: newID(), Attempt: 1, LeaseUntil: now, Retention: op.retention(), CreatedAt: now, UpdatedAt: now,
	}
	rec.Write = rec.Owner
	do := protocol.DoCreate
	if seen != nil {
		ev := x.claimEvent()
		// A worker claims accepted work and nothing else, whichever call looks.
		if ev.Kind = protocol.EventClaim; seen.Accepted() {
			ev.Kind = protocol.EventWork
		}
		ev.Fingerprint, rec.Fingerprint, rec.Codec = seen.Fingerprint, seen.Fingerprint, seen.Codec
		do = protocol.Next(seen, ev, now).Do
	}
	if do == protocol.DoPark && seen.State == Released {
		do = protocol.DoTakeOver // its state stays, and a call that was about to park it reads it again
	}
	if !free(do) {
		return false, nil
	}
	w := protocol.Withdrawal{Claim: e.claimOver(rec, seen, do, LeaveAbandonedUnnoticed), Owner: newID()}
	w.Write, w.Uncertain = w.Owner, w.Claim.Record.Uncertain
	if len(w.Claim.Record.Steps) == 0 {
		w.ExpiresAt = ceil(now.Add(max(w.Claim.Record.Retention, fenceFor)), time.Second)
	}
	err := e.store.Withdraw(ctx, now, w)
	if err != nil {
		if protocol.Answers(err) {
			err = nil
		}
		return false, err
	}
	e.tell(ctx, notice.Withdrawn, notice.Notice{ID: id, Tenant: x.call.Key.tenant, Operation: op.Name, Attempt: w.Claim.Record.Attempt, State: Released})
	return true, nil
}
