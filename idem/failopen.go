package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// failsOpen reports whether the call runs without the claim that could not be written:
// the operation allows that, the store is down, this process knows of no earlier
// attempt whose outcome waits to be written, and the caller still waits.
func (x *execution) failsOpen(ctx context.Context, err error) bool {
	var failed *StoreError
	return x.call.Key.op.OnStoreFailure != FailClosed && errors.As(err, &failed) && failed.Down &&
		ctx.Err() == nil && !x.engine.queue.hasOutcomeOf(x.call.Key.id)
}

// writeFinish writes how an attempt ended, under the time now. Repeating it is safe.
//
// An attempt without a claim may conflict with a record. If that one has expired or is
// free to be claimed, the attempt claims it now, as it would have done before its
// handler ran: otherwise its outcome would be lost, and the next call would run again.
// A process that dies in between leaves a lapsed claim, which says what is true.
func (e *Engine) writeFinish(ctx context.Context, now time.Time, f protocol.Finish) error {
	var err error
	for range maxRounds {
		err = e.store.Finish(ctx, now, f)
		open, unclaimed := f.Attempt.(protocol.Unclaimed)
		if unclaimed && conflictUnseen(err) {
			// Which record it is decides, so it is read.
			rec, gErr := e.store.Get(ctx, f.ID)
			switch {
			case gErr != nil:
				return err
			case rec.Bears(f.Write):
				return nil
			case rec == nil:
				continue
			}
			err = &protocol.ConflictError{Existing: rec}
		}
		conflict, refused := errors.AsType[*protocol.ConflictError](err)
		if !unclaimed || !refused || conflict.Existing == nil {
			return err
		}
		if f.Ending.State == Released && !f.Ending.Uncertain && f.NewOwner == "" {
			return err // there is nothing to remember, and nothing to fence
		}
		ev := protocol.Event{Kind: protocol.EventClaim, Fingerprint: open.Record.Fingerprint, Repeat: open.Record.Repeat, Margin: e.opts.Margin}
		do := protocol.Next(conflict.Existing, ev, e.now()).Do
		if do != protocol.DoReplace && do != protocol.DoTakeOver {
			return err
		}
		rec, watch := open.Record, WatchNotRepeatable
		rec.Write = newID()
		switch {
		case f.Watched:
			watch = WatchAlways
		case rec.Repeat == NotRepeatable:
			watch = LeaveAbandonedUnnoticed // or the attempt would be watched
		}
		c := e.claimOver(rec, conflict.Existing, do, watch)
		aErr := e.store.Acquire(ctx, now, c)
		if aErr != nil && !isAnswer(aErr) {
			return aErr
		}
		f.Watched = !c.Record.Due.IsZero()
		if f.Ending.Unsettled != 0 {
			f.Ending.Unsettled = c.Record.Unsettled + 1
		}
	}
	return err
}
