package idem

import (
	"context"
	"log/slog"
	"time"
)

// Notice is what an observer is told.
type Notice struct {
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

// Observer is told what happens, for metrics and logs. Every function may be
// nil. They run on the caller's path: they should be quick, must be safe for
// concurrent use and must not call the engine. A panic in one of them ends there, as an
// error in [slog.Default]: no metric may cost an outcome.
type Observer struct {
	// Claimed: a first attempt has its claim. TookOver: a later one has.
	Claimed, TookOver func(context.Context, Notice)
	// Replayed: a call was answered with a recorded outcome or failure.
	Replayed func(context.Context, Notice)
	// InFlight, Accepted, Unknown, Reused: a call was answered with that.
	InFlight, Accepted, Unknown, Reused func(context.Context, Notice)
	// Completed, Failed, Released, Parked: an attempt ended so, and it is recorded.
	Completed, Failed, Released, Parked func(context.Context, Notice)
	// StepRecorded: a step ran, and its outcome is recorded. StepReplayed: a step was
	// skipped, its outcome had been recorded. StepInterrupted: an at-most-once step
	// was found open. Compensated: a step was undone.
	StepRecorded, StepReplayed, StepInterrupted, Compensated func(context.Context, Notice)
	// Uncommitted: an attempt in atomic mode, or one with a unit of work, ended and
	// nothing of it was committed for certain. Err is why: the handler's error, or a
	// [*CommitError].
	Uncommitted func(context.Context, Notice)
	// ResultDropped: an outcome was recorded without its result.
	ResultDropped func(context.Context, Notice)
	// LeaseLost: an attempt found that it no longer has the claim.
	LeaseLost func(context.Context, Notice)
	// OutOfTime: no claim was taken for want of time.
	OutOfTime func(context.Context, Notice)
	// StoreUnavailable: the store could not be reached before the claim.
	StoreUnavailable func(context.Context, Notice)
	// FailedOpen: the handler runs without a claim.
	FailedOpen func(context.Context, Notice)
	// Unreadable: a record could not be read, and the call failed closed.
	Unreadable func(context.Context, Notice)
	// Withdrawn: a claim whose reply never came was taken back.
	Withdrawn func(context.Context, Notice)
	// Queued: a write after the handler could not be confirmed and is kept for
	// later; in state Completed it is the result alone, its outcome is recorded.
	// Landed: it was written. Dropped: it was given up, for the reason in Err; of a
	// result alone ResultDropped says so. Landed, Dropped and this ResultDropped get a
	// context without values: the call that they come from is over.
	Queued, Landed, Dropped func(context.Context, Notice)
}

// tell calls one of an observer's functions, if it is there.
func tell(ctx context.Context, f func(context.Context, Notice), n Notice) {
	if f == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "idem: an observer panicked; repair it, the operation goes on", "panic", p, "record", n.ID)
		}
	}()
	f(ctx, n)
}
