package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// finished is what became of an attempt's end.
type finished struct {
	state State // that the record is in
	// recordedAt is the time under which the end was sent, expiresAt its expiry.
	recordedAt, expiresAt time.Time
	queued                bool // the end, or its result alone, is written later
	omitted               bool // the result was given up
}

// finish records the end. An error says that the claim is lost. What else goes wrong is queued, and releases nothing.
func (x *execution) finish(ctx context.Context, a *attempt, en ending) (finished, error) {
	e := x.engine
	t := guard.End{
		Finish: protocol.Finish{ID: a.rec.ID, Owner: a.rec.Owner, Write: a.writeID(), Ending: en.Ending, Attempt: a.kind(),
			LargeSteps: a.journal.anyLarge(), Watched: a.watched()},
		Summary: en.kept, Retention: x.call.Key.op.retention(), Attempt: a.rec.Attempt,
	}
	if len(en.Result) > guard.LargeResult {
		t.Finish.Progress = new(protocol.Progress)
	}
	ctx, cancel := x.finishing(ctx, len(en.Result))
	defer cancel()
	err := e.pending.Write(ctx, &t)
	done := finished{state: en.State, recordedAt: t.Recorded, expiresAt: t.Finish.Ending.ExpiresAt}
	n := notice.Notice{Attempt: a.rec.Attempt, State: en.State}
	if en.Failure != nil {
		n.Err = &RecordedError{*en.Failure}
	}
	switch {
	case err == nil:
		done.queued, done.omitted = x.endWritten(ctx, &t, n)
		return done, nil
	case parkedBy(existing(err), a.rec.Owner):
		// By a stricter call: the question stays open, and the claim is ours.
		n.State, done.state = Unknown, Unknown
		x.notify(ctx, noticeOf(Unknown), n)
		return done, nil
	case protocol.Answers(err):
		return finished{}, err
	}
	done.state = InProgress
	done.queued, done.omitted = e.pending.Keep(ctx, &t, x.kill.IsZero(), err)
	if l := a.running.Load(); l != nil && l.isOver() {
		// Another attempt may have the claim by now: what it does is the outcome.
		return finished{}, &protocol.ConflictError{}
	}
	return done, nil
}

// panicked ends the attempt of a handler that panics, or leaves its goroutine.
func (x *execution) panicked(ctx context.Context, a *attempt) {
	if a.atomic() {
		x.notify(ctx, notice.Uncommitted, notice.Notice{Attempt: a.made().Attempt, State: a.seenState, Err: errPanicked})
		return
	}
	f := &Failure{Message: "the handler panicked", Type: "panic"}
	if _, err := x.finish(ctx, a, x.ending(a, ClassUncertain, Answer{}, f)); err != nil {
		_, _ = x.lost(ctx, a, err)
	}
}

// endWritten tells that an end is recorded, and adds its result if that is owed: at once if there is time, else
// later. It returns whether the result is queued, and whether it was given up.
func (x *execution) endWritten(ctx context.Context, t *guard.End, n notice.Notice) (queued, omitted bool) {
	e := x.engine
	var err error
	if t.Owes() {
		err = e.pending.AddResult(ctx, t)
	}
	if t.Omitted != nil {
		x.notify(ctx, notice.ResultOmitted, notice.Notice{Attempt: n.Attempt, State: n.State, Err: t.Omitted})
	}
	x.notify(ctx, noticeOf(n.State), n)
	if err == nil {
		return false, t.Omitted != nil
	}
	return e.pending.Keep(ctx, t, x.kill.IsZero(), err)
}

func noticeOf(s State) notice.Kind {
	switch s {
	case Pending:
		return notice.Accepted
	case Completed:
		return notice.Completed
	case Failed:
		return notice.Failed
	case Released:
		return notice.Released
	}
	return notice.Parked
}

// lost answers the caller of an attempt that lost its claim: with the recorded outcome, never with the attempt's own.
func (x *execution) lost(ctx context.Context, a *attempt, err error) (Outcome, error) {
	conflict, ok := errors.AsType[*protocol.ConflictError](err)
	if !ok {
		x.notify(ctx, notice.Unreadable, notice.Notice{Attempt: a.rec.Attempt, Err: err})
		return Outcome{}, fmt.Errorf("%w: %w", &InFlightError{Lost: true}, err)
	}
	rec := conflict.Existing
	n := notice.Notice{Attempt: a.rec.Attempt, Err: ErrLeaseLost}
	if rec != nil {
		n.State = rec.State
	}
	x.notify(ctx, notice.LeaseLost, n)
	if rec == nil {
		return Outcome{}, fmt.Errorf("%w: %w", &InFlightError{Lost: true}, err)
	}
	switch protocol.Next(rec, x.claimEvent(), x.engine.now()).Do {
	case protocol.DoReplay:
		ctx, cancel := x.finishing(ctx, rec.Body.Stored)
		defer cancel()
		out, err := x.engine.Replay(ctx, rec)
		if errors.Is(err, ErrStoreUnavailable) {
			// Something was executed: the caller must not read that nothing was.
			break
		}
		return out, err
	case protocol.DoUnknown:
		return Outcome{}, ErrOutcomeUnknown
	}
	return Outcome{}, x.inFlightError(rec, true)
}

// outcome of the attempt's own answer and end.
func (a *attempt) outcome(ans Answer, end ending, done finished) Outcome {
	ref, _ := a.reference.known()
	return Outcome{
		Ref: ref, Body: ans.Body, Executed: true,
		RecordState: done.state, AttemptState: end.State, Class: end.class, StopCause: a.stopped, Failure: end.Failure,
		Attempt: a.made().Attempt, CreatedAt: a.made().CreatedAt, RecordedAt: done.recordedAt, ExpiresAt: done.expiresAt,
		Queued: done.queued, Omitted: end.Omitted || done.omitted, ResponseVersion: ans.ResponseVersion,
	}
}

// flushLarge writes what waits if some of it is too large for the time before a claim. It is called
// where nothing runs in the background, once a call's own end is written: the store answers then.
func (x *execution) flushLarge(ctx context.Context) {
	x.engine.pending.FlushLarge(func(size int) (context.Context, context.CancelFunc) { return x.finishing(ctx, size) })
}
