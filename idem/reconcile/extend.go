package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Extend keeps a record that has ended, with its result, at least until a time, for example
// while a queue whose messages are its retries is paused, or during a dispute. Until then a
// later call gets its outcome. A record that is kept as long already stays as it is. It
// cannot be kept for a shorter time than it is: [Reconciler.Forget] removes it.
//
// An open question, and a record in progress, give [ErrOpen]: they are kept until they have an
// outcome, and Resolve gives it the operation's retention. A record that has expired gives
// [ErrExpired], an absent one [ErrNotFound]: it is too late, and the next call runs the handler
// again. A call that has found the record expired by its own clock and a person who extends it
// may come at the same time: the first one counts, and the other one is told.
//
// If the attempt has recorded the outcome without its result, which it would add later, an
// extension in between keeps it from doing so: [idem.Record]'s Omitted shows it.
// A resolution over the one that was extended ([Resolution.Replace]) is kept at least as long.
func (r *Reconciler) Extend(ctx context.Context, id string, until time.Time, by Change) error {
	if err := by.check(); err != nil {
		return err
	}
	if !until.After(r.now()) || until.After(never) {
		return &idem.ConfigError{What: "extension", Problem: fmt.Sprintf("until is %s: use a time in the future, before the year 9999", until.Format(time.RFC3339))}
	}
	until = wholeSecond(until.UTC())
	for range maxRounds {
		rec, err := r.store.Get(ctx, id)
		if err != nil {
			return err
		}
		if rec == nil {
			return fmt.Errorf("%w: %q: it has expired and was deleted, or there never was one", ErrNotFound, id)
		}
		if err := by.about(rec); err != nil {
			return err
		}
		switch r.prolongs(rec, until) {
		case protocol.DoNothing:
			return nil
		case protocol.DoRefuse:
			if rec.Ended() {
				return fmt.Errorf("%w at %s: the next call runs the handler again", ErrExpired, rec.ExpiresAt.Format(time.RFC3339))
			}
			return fmt.Errorf("%w or kept for longer: this one is %s, and is kept until it has an outcome", ErrOpen, rec.State)
		}
		p := protocol.Prolongation{
			ID: id, Seen: rec.Write, Write: newID(), ExpiresAt: until, Audit: r.audit(rec, by, protocol.ChangeExtended, rec.State, ""),
		}
		p.Audit.Until = until
		err = again(ctx, func() error { return r.store.Prolong(ctx, r.now(), p) })
		if !isAnswer(err) {
			return err
		}
		// Somebody else wrote in between, or it has expired: look again.
	}
	return fmt.Errorf("%w: somebody else keeps writing it", ErrChanged)
}

// prolongs is what the machine says to keeping the record until a time.
func (r *Reconciler) prolongs(rec *idem.Record, until time.Time) protocol.Action {
	return protocol.Next(rec, protocol.Event{Kind: protocol.EventProlong, Seen: rec.Write, ExpiresAt: until}, r.now()).Do
}
