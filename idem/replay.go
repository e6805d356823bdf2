package idem

import (
	"context"
	"errors"
	"slices"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// answer makes the error of a call that neither runs nor replays.
func (x *execution) answer(ctx context.Context, rec *Record, do protocol.Action) error {
	n := notice.Notice{Attempt: rec.Attempt, State: rec.State}
	switch do {
	case protocol.DoInFlight:
		x.notify(ctx, notice.InFlight, n)
		return x.inFlightError(rec, false)
	case protocol.DoUnknown:
		n.State = Unknown // also of a claim that was parked just now
		x.notify(ctx, notice.Unknown, n)
		return ErrOutcomeUnknown
	case protocol.DoAccepted:
		n.Repeated = true
		x.notify(ctx, notice.Accepted, n)
		return ErrAccepted
	case protocol.DoReused:
		x.notify(ctx, notice.Reused, n)
		return x.reused(ctx, rec)
	}
	x.notify(ctx, notice.Unreadable, n)
	return ErrRecordUnreadable
}

func (x *execution) inFlightError(rec *Record, lost bool) error {
	left := rec.LeaseUntil.Add(x.engine.opts.Margin).Sub(x.engine.now())
	return &InFlightError{Lost: lost, LeaseLeft: max(left, 0), Attempt: rec.Attempt}
}

// waits is the outcome of a call whose operation was accepted, by it or, if it is repeated, by an earlier one.
func (x *execution) waits(ctx context.Context, rec *Record, repeated bool) Outcome {
	x.notify(ctx, notice.Accepted, notice.Notice{Attempt: rec.Attempt, State: rec.State, Repeated: repeated})
	return Outcome{
		RecordState: rec.State, Attempt: rec.Attempt, CreatedAt: rec.CreatedAt, StatusID: rec.StatusID(), Ref: rec.Ref,
	}
}

// reused makes the error of a reused key. It carries the first input's result only if
// the record itself holds it: a refusal is not worth a further call to the store.
func (x *execution) reused(ctx context.Context, rec *Record) error {
	e := &ReusedError{State: rec.State}
	if rec.State == Completed && rec.Body.Parts == 0 {
		e.Result, _ = x.engine.store.Result(ctx, rec)
	}
	return e
}

// Replay returns the outcome in a record that is Completed or Failed.
func (e *Engine) Replay(ctx context.Context, rec *Record) (Outcome, error) {
	out := Outcome{
		Replayed: true, RecordState: rec.State, Attempt: rec.Attempt,
		CreatedAt: rec.CreatedAt, RecordedAt: rec.UpdatedAt, ExpiresAt: rec.ExpiresAt,
		ResponseVersion: rec.ResponseVersion, Ref: rec.Ref,
	}
	if rec.State == Failed {
		f := rec.Failure
		if f == nil {
			return Outcome{}, ErrRecordUnreadable
		}
		out.Failure = f
		return out, &RecordedError{*f}
	}
	body, err := e.store.Result(ctx, rec)
	if errors.Is(err, ErrRecordUnreadable) {
		again, gErr := e.store.Get(ctx, rec.ID)
		if gErr != nil {
			return Outcome{}, gErr
		}
		if again == nil || again.State != Completed || again.Write != rec.Write {
			return Outcome{}, err
		}
		body, err = e.store.Result(ctx, again)
	}
	if err != nil {
		return Outcome{}, err
	}
	if rec.Omitted {
		return out, &OutcomeUnavailableError{Summary: body}
	}
	out.Body = body
	return out, nil
}

// turnedAway reports why a call may not execute, whatever its record is, and returns that.
func (x *execution) turnedAway(ctx context.Context, err error) error {
	why := [...]error{ErrOutOfTime, ErrLimitExceeded, ErrPaused, ErrStoreUnavailable}
	as := [...]notice.Kind{notice.OutOfTime, notice.LimitExceeded, notice.Paused, notice.StoreUnavailable}
	if n := slices.IndexFunc(why[:], func(is error) bool { return errors.Is(err, is) }); n >= 0 {
		x.notify(ctx, as[n], notice.Notice{Err: err})
	}
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
