package idem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/idem-go/idempotency/idem/protocol"
	"slices"
	"time"
)

// Resolution is what a person, or a question to the provider, found out about an
// unknown outcome.
type Resolution struct {
	// To is Completed (it took effect, and Result is its outcome), Failed (it ended
	// in Failure) or Released (it did not take effect). Required.
	To State
	// Result of To Completed, encoded as the operation's own results are, which is JSON
	// but for requests: an idemhttp.Contract makes the resolution of one. Nil means that it
	// is not known: replays say [ErrOutcomeUnavailable].
	Result []byte
	// Codec is the record's: how Result is encoded, empty for JSON.
	Codec string
	// Check shows that later calls can read Result: a result that it refuses, or that
	// is no JSON where Check is nil, is not stored.
	Check func(result []byte) error
	// Failure of To Failed. Required there.
	Failure *Failure
	// Undone says of To Failed that what the steps did has been undone by hand. Without it
	// a record with compensations that have not run is refused with a [*NotUndoneError].
	Undone bool
	// Ref is the provider's reference, if there is one.
	Ref string
	// ResponseVersion of the Result's schema.
	ResponseVersion int
}

func (r Resolution) check() error {
	switch {
	case r.To != Completed && r.To != Failed && r.To != Released:
		return &ConfigError{What: "resolution", Problem: "To is \"" + string(r.To) + "\": use idem.Completed, idem.Failed or idem.Released"}
	case r.To == Failed && r.Failure == nil:
		return &ConfigError{What: "resolution", Problem: "Failure is nil: say what the failure is"}
	case r.To != Completed && r.Result != nil:
		return &ConfigError{What: "resolution", Problem: "Result is given: only a completed outcome has one"}
	case r.To != Failed && r.Undone:
		return &ConfigError{What: "resolution", Problem: "Undone is set: only a failed outcome needs its steps undone"}
	}
	if r.Result == nil {
		return nil
	}
	if r.Check == nil && !json.Valid(r.Result) {
		return &ConfigError{What: "resolution", Problem: "Result is not JSON, which later calls could not read: encode it as the operation's handler does, " +
			"or make the resolution of an HTTP request with the contract's Resolution method"}
	}
	if r.Check != nil {
		if err := r.Check(r.Result); err != nil {
			return &ConfigError{What: "resolution", Problem: "later calls could not read Result: " + err.Error()}
		}
	}
	return nil
}

func codecName(codec string) string {
	if codec == "" {
		return "JSON"
	}
	return codec
}

// ErrNotUndone: the record to resolve to Failed has steps whose compensations have not run.
// Read a [*NotUndoneError] for which.
var ErrNotUndone = errors.New("idem: steps have not been undone")

// NotUndoneError says which steps of a record have a compensation that has not run:
// resolved to Failed, they would be forgotten. It matches [ErrNotUndone].
type NotUndoneError struct {
	// Steps are their names, in order.
	Steps []string
}

func (e *NotUndoneError) Error() string {
	return fmt.Sprintf("%v: %q: undo them by hand and set Resolution.Undone; or, only if an interrupted step provably had no effect, "+
		"resolve to released: the next attempt runs that step again, and undoes them or goes on", ErrNotUndone, e.Steps)
}

func (e *NotUndoneError) Is(target error) bool { return target == ErrNotUndone }

// notUndone lists the recorded steps whose compensations have not run.
func notUndone(rec *Record) (names []string) {
	for name, s := range rec.Steps {
		if _, undone := rec.Steps[undoing+name]; s.Compensates && !undone {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Resolve records the outcome of the unknown record with the id ([Key.ID]). It
// replaces the owner: the parked attempt can change nothing any more. The
// resolution to Released is refused with [ErrTooEarly] while the parked attempt
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
			return fmt.Errorf("%w: %q", ErrNotFound, id)
		}
		now := e.now()
		if rec.State == InProgress && rec.Lapsed(now, e.opts.Margin) && (rec.Repeat == NotRepeatable || rec.Interrupted()) {
			err := e.writeSettlement(ctx, 0, protocol.Settlement{
				ID: id, Kind: protocol.EventLapse, Seen: rec.Write, Write: newID(),
				Ending: protocol.Ending{State: Unknown, Failure: rec.Failure, Uncertain: true},
			})
			if err != nil && !isAnswer(err) {
				return err
			}
			continue
		}
		ev := protocol.Event{Kind: protocol.EventResolve, Seen: rec.Write, To: r.To, Margin: e.opts.Margin}
		switch protocol.Next(rec, ev, now).Do {
		case protocol.DoTooEarly:
			return ErrTooEarly
		case protocol.DoRefuse:
			return fmt.Errorf("%w: this one is %s", ErrNotUnknown, rec.State)
		}
		if r.Result != nil && r.Codec != rec.Codec {
			return &ConfigError{What: "resolution", Problem: fmt.Sprintf("Result is %s, and later calls read %s: encode it as the operation's handler does, "+
				"for an HTTP request with the contract's Resolution method", codecName(r.Codec), codecName(rec.Codec))}
		}
		if due := notUndone(rec); r.To == Failed && !r.Undone && len(due) > 0 {
			return &NotUndoneError{Steps: due}
		}
		err = e.writeSettlement(ctx, rec.Retention, e.settlement(rec, r))
		var conflict *protocol.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		// Somebody else wrote in between: look again.
	}
	return ErrNotUnknown
}

// writeSettlement writes the resolution, and the same again if its reply was lost: a
// resolver that asks anew would take its own answer for somebody else's. The retention
// of an outcome counts from the try that lands.
func (e *Engine) writeSettlement(ctx context.Context, retention time.Duration, s protocol.Settlement) (err error) {
	for range 3 {
		now := e.now()
		if !s.Ending.ExpiresAt.IsZero() {
			s.Ending.ExpiresAt = e.expiry(now, retention, len(s.Ending.Result))
		}
		err = e.store.Settle(ctx, now, s)
		var sErr *StoreError
		if !errors.As(err, &sErr) || !sErr.Ambiguous || ctx.Err() != nil {
			break
		}
	}
	return err
}

func (e *Engine) settlement(rec *Record, r Resolution) protocol.Settlement {
	s := protocol.Settlement{ID: rec.ID, Kind: protocol.EventResolve, Seen: rec.Write, Owner: newID(), Ending: protocol.Ending{
		State: r.To, Result: r.Result, Failure: r.Failure, Ref: r.Ref, ResponseVersion: r.ResponseVersion,
		ExpiresAt: e.expiry(e.now(), rec.Retention, len(r.Result)),
	}}
	s.Write = s.Owner
	s.Ending.Omitted = r.To == Completed && r.Result == nil
	kept := 0
	for name, step := range rec.Steps {
		if step.Begun {
			s.ClearSteps = append(s.ClearSteps, name)
		} else {
			kept++
		}
	}
	if r.To == Released && kept > 0 {
		s.Ending.ExpiresAt = time.Time{}
	}
	return s
}
