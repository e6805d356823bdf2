package idem

import (
	"context"
	"log/slog"
	"time"
)

// Observer is told what happens, for metrics and logs. It runs on the caller's path:
// it should be quick, must be safe for concurrent use and must not call the engine. A
// panic in it ends there, as an error in [slog.Default]: no metric may cost an
// outcome. Kinds are added over time, so an observer ignores those it does not know.
type Observer func(ctx context.Context, n Notice)

// Notice is what an observer is told.
type Notice struct {
	// Kind says what has happened.
	Kind NoticeKind
	// ID of the record, Tenant and Operation of the key.
	ID, Tenant, Operation string
	// Step is the name of the step that the notice is about, if any.
	Step string
	// Attempt is the number of the attempt that the notice is about, 0 if none.
	Attempt int
	// State that the record is in now, as far as is known.
	State State
	// Elapsed since the call began, or since the write was queued.
	Elapsed time.Duration
	// Err is the handler's error, or what went wrong.
	Err error
}

// NoticeKind says what a [Notice] is about, in a word that logs and metrics can use
// as it is.
type NoticeKind string

// What an observer is told of.
const (
	// NoticeClaimed: a first attempt has its claim.
	NoticeClaimed NoticeKind = "claimed"
	// NoticeTookOver: a later attempt has its claim.
	NoticeTookOver NoticeKind = "took_over"
	// NoticeReplayed: a call was answered with a recorded outcome or failure.
	NoticeReplayed NoticeKind = "replayed"
	// NoticeInFlight: a call was answered with [ErrInFlight].
	NoticeInFlight NoticeKind = "in_flight"
	// NoticeAccepted: a call was answered with [ErrAccepted].
	NoticeAccepted NoticeKind = "accepted"
	// NoticeUnknown: a call was answered with [ErrOutcomeUnknown].
	NoticeUnknown NoticeKind = "outcome_unknown"
	// NoticeReused: a call was answered with [ErrKeyReused].
	NoticeReused NoticeKind = "key_reused"
	// NoticeCompleted: an attempt ended with a result, and it is recorded.
	NoticeCompleted NoticeKind = "completed"
	// NoticeFailed: an attempt ended with a terminal failure, and it is recorded.
	NoticeFailed NoticeKind = "failed"
	// NoticeReleased: an attempt ended without outcome, and the key is free again.
	NoticeReleased NoticeKind = "released"
	// NoticeParked: an attempt ended or lapsed, and nobody knows its outcome.
	NoticeParked NoticeKind = "parked"
	// NoticeStepRecorded: a step ran, and its outcome is recorded.
	NoticeStepRecorded NoticeKind = "step_recorded"
	// NoticeStepReplayed: a step was skipped, since its outcome had been recorded.
	NoticeStepReplayed NoticeKind = "step_replayed"
	// NoticeStepInterrupted: an at-most-once step was found begun and without outcome.
	NoticeStepInterrupted NoticeKind = "step_interrupted"
	// NoticeCompensated: a step was undone.
	NoticeCompensated NoticeKind = "step_compensated"
	// NoticeUncommitted: an attempt in atomic mode, or one with a unit of work, ended
	// and nothing of it was committed for certain. Err is why: the handler's error, or
	// a [*CommitError].
	NoticeUncommitted NoticeKind = "uncommitted"
	// NoticeResultOmitted: an outcome was recorded without its result.
	NoticeResultOmitted NoticeKind = "result_omitted"
	// NoticeLeaseLost: an attempt found that it no longer has the claim.
	NoticeLeaseLost NoticeKind = "lease_lost"
	// NoticeOutOfTime: no claim was taken for want of time.
	NoticeOutOfTime NoticeKind = "out_of_time"
	// NoticeStoreUnavailable: the store could not be reached before the claim.
	NoticeStoreUnavailable NoticeKind = "store_unavailable"
	// NoticeFailedOpen: the handler runs without a claim.
	NoticeFailedOpen NoticeKind = "failed_open"
	// NoticeUnreadable: a record could not be read, and the call failed closed.
	NoticeUnreadable NoticeKind = "record_unreadable"
	// NoticeWithdrawn: a claim whose reply never came was taken back.
	NoticeWithdrawn NoticeKind = "withdrawn"
	// NoticeOutcomeQueued: a write after the handler could not be confirmed and is
	// kept for later. In state Completed it is the result alone, and the outcome is
	// recorded.
	NoticeOutcomeQueued NoticeKind = "outcome_queued"
	// NoticeOutcomeLanded: a queued write was written. Like NoticeOutcomeDropped, and
	// like NoticeResultOmitted of a queued result, it comes with a context without
	// values: the call that it belongs to is over.
	NoticeOutcomeLanded NoticeKind = "outcome_landed"
	// NoticeOutcomeDropped: a queued write was given up, for the reason in Err.
	NoticeOutcomeDropped NoticeKind = "outcome_dropped"
)

// tell calls the observer, if there is one.
func (e *Engine) tell(ctx context.Context, kind NoticeKind, n Notice) {
	if e.opts.Observer == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "idem: an observer panicked; repair it, the operation goes on", "panic", p, "record", n.ID)
		}
	}()
	n.Kind = kind
	e.opts.Observer(ctx, n)
}
