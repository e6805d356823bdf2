package idem

import (
	"context"
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

// What an observer is told of. Err of NoticeUncommitted is the handler's error or a
// [*CommitError]. What is told of queued writes later comes with a context without
// values: the call that it belongs to is over.
const (
	NoticeClaimed          NoticeKind = "claimed"           // a first attempt has its claim
	NoticeTookOver         NoticeKind = "took_over"         // a later attempt has its claim
	NoticeReplayed         NoticeKind = "replayed"          // answered with a recorded outcome
	NoticeInFlight         NoticeKind = "in_flight"         // answered with [ErrInFlight]
	NoticeAccepted         NoticeKind = "accepted"          // answered with [ErrAccepted]
	NoticeUnknown          NoticeKind = "outcome_unknown"   // answered with [ErrOutcomeUnknown]
	NoticeReused           NoticeKind = "key_reused"        // answered with [ErrKeyReused]
	NoticeCompleted        NoticeKind = "completed"         // an attempt's result is recorded
	NoticeFailed           NoticeKind = "failed"            // an attempt's terminal failure is recorded
	NoticeReleased         NoticeKind = "released"          // ended without outcome, the key is free
	NoticeParked           NoticeKind = "parked"            // ended or lapsed, nobody knows the outcome
	NoticeStepRecorded     NoticeKind = "step_recorded"     // a step ran, its outcome is recorded
	NoticeStepReplayed     NoticeKind = "step_replayed"     // a step was skipped, it is recorded
	NoticeStepInterrupted  NoticeKind = "step_interrupted"  // an at-most-once step began and has no outcome
	NoticeCompensated      NoticeKind = "step_compensated"  // a step was undone
	NoticeUncommitted      NoticeKind = "uncommitted"       // nothing of a unit of work was committed for certain
	NoticeResultOmitted    NoticeKind = "result_omitted"    // an outcome is recorded without its result
	NoticeLeaseLost        NoticeKind = "lease_lost"        // an attempt no longer has its claim
	NoticeOutOfTime        NoticeKind = "out_of_time"       // no claim was taken for want of time
	NoticeStoreUnavailable NoticeKind = "store_unavailable" // the store could not be reached before the claim
	NoticeFailedOpen       NoticeKind = "failed_open"       // the handler runs without a claim
	NoticeUnreadable       NoticeKind = "record_unreadable" // a record cannot be read, the call failed closed
	NoticeWithdrawn        NoticeKind = "withdrawn"         // a claim without a reply was taken back
	NoticeOutcomeQueued    NoticeKind = "outcome_queued"    // a write is kept for later; in state Completed, the result alone
	NoticeOutcomeLanded    NoticeKind = "outcome_landed"    // a queued write was written
	NoticeOutcomeDropped   NoticeKind = "outcome_dropped"   // a queued write was given up
)
