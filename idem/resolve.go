package idem

import (
	"context"
	"errors"
	"time"
)

// Resolution settles an unknown outcome: what a person, or a question to the
// provider, found out.
type Resolution struct {
	// To is Completed (it took effect, and Result is its outcome), Failed (it ended
	// in Failure) or Retryable (it surely did not take effect). Required.
	To State
	// Result of To Completed, encoded as the operation's own results are. Nil means
	// that it is not known: replays say [ErrOutcomeUnavailable].
	Result []byte
	// Failure of To Failed. Required there.
	Failure *Failure
	// Ref is the provider's reference, if there is one.
	Ref string
	// ResponseVersion of the Result's schema.
	ResponseVersion int
}

func (r Resolution) check() error {
	switch {
	case r.To != Completed && r.To != Failed && r.To != Retryable:
		return &ConfigError{"resolution", "To is \"" + string(r.To) + "\": use idem.Completed, idem.Failed or idem.Retryable"}
	case r.To == Failed && r.Failure == nil:
		return &ConfigError{"resolution", "Failure is nil: say what the failure is"}
	case r.To != Completed && r.Result != nil:
		return &ConfigError{"resolution", "Result is given: only a completed outcome has one"}
	}
	return nil
}

// Resolve settles the unknown outcome of the record with the id ([Key.ID]). It
// replaces the owner: the parked attempt can change nothing any more. The
// resolution to Retryable is refused with [ErrTooEarly] while the parked attempt
// may still be running. A record that is not unknown gives [ErrNotUnknown], also
// if somebody else was faster; a claim of a not repeatable operation whose lease
// is over counts as unknown. An absent record gives [ErrNotFound].
func (e *Engine) Resolve(ctx context.Context, id string, r Resolution) error {
	if err := r.check(); err != nil {
		return err
	}
	for range maxRounds {
		rec, err := e.store.Get(ctx, id)
		if err != nil {
			return err
		}
		if rec == nil {
			return ErrNotFound
		}
		now := e.now()
		if rec.State == InProgress && rec.Lapsed(now, e.opts.Margin) && (rec.Repeat == NotRepeatable || rec.interrupted()) {
			err := e.settle(ctx, now, Settlement{
				ID: id, Kind: EventLapse, Seen: rec.Write, Write: newID(),
				Ending: Ending{State: Unknown, Failure: rec.Failure, Uncertain: true},
			})
			if err != nil && !isAnswer(err) {
				return err
			}
			continue
		}
		ev := Event{Kind: EventResolve, Seen: rec.Write, To: r.To, Margin: e.opts.Margin}
		switch Next(rec, ev, now).Do {
		case DoTooEarly:
			return ErrTooEarly
		case DoRefuse:
			return ErrNotUnknown
		}
		err = e.settle(ctx, now, e.settlement(rec, r))
		var conflict *ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		// Somebody else wrote in between: look again.
	}
	return ErrNotUnknown
}

// settle writes the resolution, and the same again if its reply was lost: a
// resolver that asks anew would meet its own answer as somebody else's.
func (e *Engine) settle(ctx context.Context, now time.Time, s Settlement) error {
	err := e.store.Settle(ctx, now, s)
	for range 2 {
		var sErr *StoreError
		if !errors.As(err, &sErr) || !sErr.Maybe || ctx.Err() != nil {
			break
		}
		err = e.store.Settle(ctx, now, s)
	}
	return err
}

func (e *Engine) settlement(rec *Record, r Resolution) Settlement {
	s := Settlement{ID: rec.ID, Kind: EventResolve, Seen: rec.Write, Owner: newID(), Ending: Ending{
		State: r.To, Result: r.Result, Failure: r.Failure, Ref: r.Ref, ResponseVersion: r.ResponseVersion,
		ExpiresAt: ceil(e.now().Add(rec.Retention), time.Second),
	}}
	s.Write = s.Owner + ".0"
	s.Ending.Unavailable = r.To == Completed && r.Result == nil
	kept := 0
	for name, step := range rec.Steps {
		if step.Begun {
			s.ClearSteps = append(s.ClearSteps, name)
		} else {
			kept++
		}
	}
	if r.To == Retryable && kept > 0 {
		s.Ending.ExpiresAt = time.Time{}
	}
	return s
}
