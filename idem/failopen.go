package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// failsOpen reports whether the call runs without the claim that could not be written:
// the operation allows that, the store is down, this process knows of no earlier
// attempt whose outcome waits to be written, and the caller still waits.
func (x *execution) failsOpen(ctx context.Context, err error) bool {
	var failed *StoreError
	return x.call.Accepted == nil && x.call.Key.op.OnStoreFailure != FailClosed && errors.As(err, &failed) && failed.Down &&
		ctx.Err() == nil && !x.engine.queue.hasOutcomeOf(x.call.Key.id)
}

// writeFinish writes how an attempt ended, under the time now. Repeating it is safe.
//
// An attempt without a claim may conflict with a record. If that one has expired or is
// free to be claimed, the attempt claims it now, as it would have done before its
// handler ran: otherwise its outcome would be lost, and the next call would run again.
// A process that dies in between leaves a lapsed claim, which says what is true.
// Steps of earlier attempts keep it out: it did not skip them, and cannot undo them.
func (e *Engine) writeFinish(ctx context.Context, now time.Time, f protocol.Finish) error {
	var err error
	for range maxRounds {
		err = e.store.Finish(ctx, now, f)
		open, unclaimed := f.Attempt.(protocol.Unclaimed)
		if unclaimed && conflictUnseen(err) {
			// Which record it is decides, so it is read.
			rec, gErr := e.store.Get(protocol.Insist(ctx), f.ID)
			switch {
			case gErr != nil && isAnswer(gErr):
				return gErr
			case gErr != nil:
				return &StoreError{Op: "finish", Ambiguous: true, Err: gErr} // it is repeated later
			case rec.Bears(f.Write):
				return nil
			case protocol.Next(rec, f.Event(), now).Do == protocol.DoApply:
				continue // there is none, or its own
			}
			err = &protocol.ConflictError{Existing: rec}
		}
		conflict, refused := errors.AsType[*protocol.ConflictError](err)
		if !unclaimed || !refused || conflict.Existing == nil {
			return err
		}
		nothing := f.Ending.State == Released && !f.Ending.Uncertain
		if nothing && f.NewOwner == "" {
			if !open.InDoubt {
				return err // there is nothing to remember, and nothing to fence
			}
			// The attempt's claim must not land once the record is gone.
			return e.writeWithdrawal(ctx, now, protocol.Withdrawal{
				Claim: protocol.Claim{Record: open.Record}, Owner: newID(), Write: f.Write, ExpiresAt: f.Ending.ExpiresAt,
			})
		}
		do := e.claims(&open.Record, conflict.Existing)
		if !free(do) {
			return err
		}
		if do == protocol.DoTakeOver && len(conflict.Existing.Steps) > 0 {
			// The attempt did not know these steps: its end is no outcome of theirs. Nothing
			// of it can land over them, and they stay: for the next attempt, unless that one
			// must not run or would skip what has been undone.
			strict := protocol.Stricter(conflict.Existing.Repeat, open.Record.Repeat) == NotRepeatable
			if nothing || !strict && !open.Undid && f.Ending.State != Unknown {
				return err
			}
			parked, pErr := e.parkOver(ctx, now, conflict.Existing, &f.Ending, strict)
			switch {
			case pErr == nil:
				return &protocol.ConflictError{Existing: parked}
			case isAnswer(pErr):
				continue // it has changed
			}
			return pErr
		}
		rec, watch := open.Record, WatchNotRepeatable
		rec.Write = newID()
		switch {
		case !rec.Due.IsZero():
			watch = WatchAlways
		case rec.Repeat == NotRepeatable:
			watch = LeaveAbandonedUnnoticed // or the attempt would be watched
		}
		c := e.claimOver(rec, conflict.Existing, do, watch)
		aErr := e.store.Acquire(protocol.Insist(ctx), now, c)
		if aErr != nil && !isAnswer(aErr) {
			return aErr
		}
		if f.Ending.Unsettled != 0 {
			f.Ending.Unsettled = c.Record.Unsettled + 1
		}
	}
	// What is free now may be claimed later.
	last := err.Error() // as a text: a conflict in it is no answer
	return &StoreError{Op: "finish", Ambiguous: true, Err: errors.New("the record changes all the time: " + last)}
}

// writeWithdrawal takes back a claim, under the time now. Repeating it is safe.
//
// A claim that has seen no record lands as soon as there is none. What stands in its way
// now, and may be gone before it comes, is replaced by the withdrawal, as the claim would.
func (e *Engine) writeWithdrawal(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	first := w
	var err error
	for range maxRounds {
		err = e.store.Withdraw(ctx, now, w)
		var conflict *protocol.ConflictError
		if first.Claim.Seen != "" || !errors.As(err, &conflict) {
			return err
		}
		seen := conflict.Existing
		if seen == nil {
			var gErr error
			if seen, gErr = e.store.Get(protocol.Insist(ctx), first.Claim.Record.ID); gErr != nil {
				return gErr
			}
		}
		w = first
		if seen == nil {
			continue
		}
		do, until := e.claims(&first.Claim.Record, seen), e.now().Add(fenceFor)
		if !free(do) || seen.ExpiresAt.IsZero() || seen.ExpiresAt.After(until) {
			return err
		}
		w.Claim = e.claimOver(first.Claim.Record, seen, do, LeaveAbandonedUnnoticed)
		w.Uncertain = w.Claim.Record.Uncertain
	}
	return err
}

// claims says what a call with the claim would do about the record.
func (e *Engine) claims(claim, rec *Record) protocol.Action {
	ev := protocol.Event{Kind: protocol.EventClaim, Fingerprint: claim.Fingerprint, Repeat: claim.Repeat, Margin: e.opts.Margin}
	return protocol.Next(rec, ev, e.now()).Do
}

// free reports whether a call would claim the record.
func free(do protocol.Action) bool {
	return do == protocol.DoCreate || do == protocol.DoReplace || do == protocol.DoTakeOver
}

// parkOver makes an open question of a record whose steps an attempt did not know that
// has run, as its end says. No earlier attempt settles it: another one has run since. Who
// finds the question reads how that one ended, which is recorded nowhere else.
func (e *Engine) parkOver(ctx context.Context, now time.Time, seen *Record, end *protocol.Ending, strict bool) (*Record, error) {
	f := Failure{Message: "its result is not recorded"}
	if end.Failure != nil {
		f = *end.Failure
	}
	f.Message = protocol.FailureText(fmt.Sprintf("parked by an attempt without a claim, which did not know the steps of an earlier one and ended as %s: %s", end.State, f.Message))
	s := protocol.Settlement{
		ID: seen.ID, Kind: protocol.EventLapse, Seen: seen.Write, Write: newID(), Owner: newID(),
		Ending: protocol.Ending{State: Unknown, Failure: &f, Uncertain: true, Stricter: strict, Ref: end.Ref},
	}
	if err := e.store.Settle(ctx, now, s); err != nil {
		return nil, err
	}
	return s.Apply(seen, now)
}
