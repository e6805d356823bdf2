package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// claim reserves the key as the machine says; in atomic mode it only looks. It returns
// the attempt that may run, or the answer that the caller gets instead.
func (x *execution) claim(ctx context.Context) (*attempt, Outcome, error) {
	e := x.engine
	part := x.claiming(ctx)
	defer part.end()
	if held := x.heldHere(); held != nil {
		return x.acquire(ctx, &part, held)
	}
	err := x.enter()
	if err == nil {
		err = x.checkSecret(ctx, part.ctx, x.call.NoClaim == nil)
	}
	var seen *Record
	if err == nil {
		_ = e.queue.flush(part.ctx) // what could not be written stays in the queue
		seen, err = x.beforeClaim(ctx, part.ctx)
	}
	if err != nil {
		if late := x.call.NoClaim; errors.Is(late, ErrOutOfTime) && !errors.Is(err, ErrRecordUnreadable) {
			// There was no time for the look either.
			x.notify(ctx, notice.OutOfTime, notice.Notice{Err: err})
			return nil, Outcome{}, late
		}
		return nil, Outcome{}, x.unavailable(ctx, err)
	}
	return x.acquire(ctx, &part, seen)
}

// acquire reserves the key over the record that was seen, or replays it, waits for it,
// parks it or refuses the call, as the machine says. The store is asked within part, which
// starts again after a wait.
func (x *execution) acquire(ctx context.Context, part *claimTime, seen *Record) (*attempt, Outcome, error) {
	e := x.engine
	atomic := x.call.Key.op.Mode == Atomic || x.later != nil
	var wait *waiter
	unreadable := false
	for range maxRounds {
		if work := x.call.Accepted; work != nil && seen != nil && seen.Ticket != work.Ticket {
			// Accepted anew since the worker has read its input.
			return nil, Outcome{}, x.answer(ctx, seen, protocol.DoInFlight)
		}
		d := protocol.Next(seen, x.claimEvent(), e.now())
		if atomic && d.Do == protocol.DoTakeOver && seen.Progressed() {
			// Left by the reserved mode: this one could not skip what is recorded.
			d = protocol.Decision{Do: protocol.DoPark, To: Unknown}
		}
		switch d.Do {
		case protocol.DoCreate, protocol.DoReplace, protocol.DoTakeOver, protocol.DoPark:
			wrote, err := x.writePending(part.ctx)
			if err == nil && wrote {
				seen, err = x.look(part.ctx)
			}
			if err != nil {
				return nil, Outcome{}, x.unavailable(ctx, err)
			}
			if wrote {
				continue
			}
		}
		switch d.Do {
		case protocol.DoCreate, protocol.DoReplace, protocol.DoTakeOver:
			if err := x.call.NoClaim; err != nil {
				if errors.Is(err, ErrOutOfTime) {
					x.notify(ctx, notice.OutOfTime, notice.Notice{Err: err})
				}
				return nil, Outcome{}, err
			}
			// The holder's clock is read before the record's: a pause between the two must not
			// make the holder rely on the lease for longer than the record says.
			sent := time.Now()
			c := x.newClaim(seen, d.Do)
			if atomic {
				return x.beginAtomic(c, seen), Outcome{}, nil
			}
			err := e.store.Acquire(part.ctx, e.now(), c)
			x.heard(ctx, err)
			if err == nil {
				return x.beginClaimed(ctx, c, sent), Outcome{}, nil
			}
			if errors.Is(err, ErrLimitExceeded) {
				return nil, Outcome{}, x.limitExceeded(ctx, err)
			}
			if _, failed := errors.AsType[*StoreError](err); failed || !protocol.Answers(err) {
				held := x.heldHere()
				if held == nil || held.Retention < fenceFor {
					return x.claimUnanswered(ctx, part, c, err, seen == nil)
				}
				// Another call of this process has the claim. This one, which saw less, cannot
				// land over it, nor over the outcome, and need not be taken back.
				seen = held
				continue
			}
			again := errors.Is(err, ErrRecordUnreadable)
			if again && unreadable {
				// It can be read, but for an attempt.
				return nil, Outcome{}, x.unavailable(ctx, err)
			}
			unreadable = again
			if seen, err = x.existing(part.ctx, err); err != nil {
				return nil, Outcome{}, x.unavailable(ctx, err)
			}
		case protocol.DoPark:
			s := protocol.Lapse(seen, x.claimEvent(), newID(), "a later call")
			err := e.store.Settle(part.ctx, e.now(), s)
			if err == nil {
				x.notify(ctx, notice.Parked, notice.Notice{Attempt: seen.Attempt, State: Unknown})
				return nil, Outcome{}, x.answer(ctx, seen, protocol.DoUnknown)
			}
			if seen, err = x.existing(part.ctx, err); err != nil {
				return nil, Outcome{}, x.unavailable(ctx, err)
			}
		case protocol.DoReplay:
			// A result within the record is there already. One beside it gets time of its own.
			within, cancel := part.ctx, func() {}
			if seen.Body.Parts > 0 {
				within, cancel = x.bounded(ctx, seen.Body.Stored)
			}
			out, err := e.Replay(within, seen)
			cancel()
			if err == nil || !errors.Is(err, ErrRecordUnreadable) && !errors.Is(err, ErrStoreUnavailable) {
				x.notify(ctx, notice.Replayed, notice.Notice{Attempt: seen.Attempt, State: seen.State, Err: err})
				return nil, out, err
			}
			return nil, Outcome{}, x.unavailable(ctx, err)
		case protocol.DoInFlight:
			if wait == nil {
				wait = x.waiting(ctx)
			}
			var over bool
			if seen, over = wait.poll(ctx, seen); !over {
				return nil, Outcome{}, x.answer(ctx, seen, protocol.DoInFlight)
			}
			if !x.timeFor(ctx, seen) {
				x.notify(ctx, notice.OutOfTime, notice.Notice{Err: ErrOutOfTime})
				return nil, Outcome{}, ErrOutOfTime
			}
			// The wait had a budget of its own: the claim gets a fresh one.
			part.end()
			*part = x.claiming(ctx)
		case protocol.DoAccepted:
			if x.later != nil {
				return nil, x.waits(ctx, seen), nil
			}
			return nil, Outcome{}, x.answer(ctx, seen, d.Do)
		case protocol.DoRefuse:
			return nil, Outcome{}, protocol.ErrNotAccepted // a worker's call
		default:
			return nil, Outcome{}, x.answer(ctx, seen, d.Do)
		}
	}
	if seen == nil {
		return nil, Outcome{}, &InFlightError{}
	}
	return nil, Outcome{}, x.answer(ctx, seen, protocol.DoInFlight)
}

// beforeClaim returns the record if that must be seen before the claim, and nil otherwise. The store
// is asked within the time of asking.
func (x *execution) beforeClaim(ctx, asking context.Context) (*Record, error) {
	op := &x.call.Key.op
	switch {
	case x.call.Accepted != nil:
		return x.call.Accepted, nil
	case x.call.NoClaim == nil && x.later == nil && (op.Mode != Atomic || op.ReplayRunsHandler):
		return nil, nil
	}
	rec, err := x.look(asking)
	x.heard(ctx, err)
	return rec, err
}

// look reads the record without claiming it, once more if it cannot be read.
func (x *execution) look(ctx context.Context) (*Record, error) {
	rec, err := x.engine.store.Get(ctx, x.call.Key.id)
	if errors.Is(err, ErrRecordUnreadable) {
		return x.engine.store.Get(ctx, x.call.Key.id)
	}
	return rec, err
}

func (x *execution) claimEvent() protocol.Event {
	kind := protocol.EventClaim
	if x.call.Accepted != nil {
		kind = protocol.EventWork
	}
	return protocol.Event{
		Kind: kind, Fingerprint: x.call.Fingerprint,
		Repeat: x.call.Key.op.Repeat, Margin: x.engine.opts.Margin, MaxAttempts: x.call.Key.op.MaxAttempts,
	}
}

// existing takes the record out of a conflict, or reads it once more where it
// could not be read. A nil record means that there is none any more.
func (x *execution) existing(ctx context.Context, err error) (*Record, error) {
	conflict, refused := errors.AsType[*protocol.ConflictError](err)
	if refused && conflict.Existing != nil {
		return conflict.Existing, nil
	}
	if refused || errors.Is(err, ErrRecordUnreadable) {
		return x.engine.store.Get(ctx, x.call.Key.id)
	}
	return nil, err
}

// beginClaimed begins the attempt of a claim that was sent at the time and is written.
func (x *execution) beginClaimed(ctx context.Context, c protocol.Claim, sent time.Time) *attempt {
	a := &attempt{key: x.call.Key, rec: c.Record, until: sent.Add(x.engine.opts.Lease)}
	a.journal.room.extra = x.engine.stepExtra
	a.journal.inherit(c.Record.Steps)
	a.reference.inherit(c.Record.Ref)
	kind := notice.Claimed
	if c.Seen != "" {
		kind = notice.TookOver
	}
	x.notify(ctx, kind, notice.Notice{Attempt: a.rec.Attempt, State: InProgress})
	return a
}

// limitExceeded tells that the store's limit refuses a claim, or a commit that makes a record.
// Nothing was written.
func (x *execution) limitExceeded(ctx context.Context, err error) error {
	x.notify(ctx, notice.LimitExceeded, notice.Notice{Err: err})
	return err
}

// unavailable makes the caller's error of a store's error before the claim.
func (x *execution) unavailable(ctx context.Context, err error) error {
	if errors.Is(err, ErrRecordUnreadable) {
		x.notify(ctx, notice.Unreadable, notice.Notice{Err: err})
		return err
	}
	x.notify(ctx, notice.StoreUnavailable, notice.Notice{Err: err})
	if errors.Is(err, ErrStoreUnavailable) {
		return err
	}
	return &StoreError{Op: "claim", Ambiguous: true, Err: err}
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
