// Package notice has what an engine reports to its observer: one [Notice] for each thing that
// happens, with its [Kind].
//
//	func observe(ctx context.Context, n notice.Notice) {
//		if n.Kind == notice.Parked {
//			parked.Add(1) // n.ID must be resolved
//		}
//	}
package notice

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Notice is what an observer gets.
type Notice struct {
	// Kind says what has happened.
	Kind Kind
	// ID of the record, Tenant and Operation of the key.
	ID, Tenant, Operation string
	// Step is the name of the step that the notice is about, if any.
	Step string
	// Attempt is the number of the attempt that the notice is about, 0 if none.
	Attempt int
	// State that the record is in now, as far as is known.
	State protocol.State
	// Elapsed since the call began, or since the write was queued. Of what a sweep does,
	// since the record has been without an outcome.
	Elapsed time.Duration
	// Took is how long this alone took, by the process's clock: the claim, from the
	// call's beginning, of Claimed and TookOver, the handler of Executed, and the recording
	// of its outcome of Completed, Failed, Released and Parked. 0 for other kinds, and where
	// no handler has returned.
	Took time.Duration
	// Repeated says of Accepted that an earlier call was accepted, and not this one.
	Repeated bool
	// Err is the handler's error, or what went wrong.
	Err error
}

// Kind says what a [Notice] is about, in a word that logs and metrics can use
// as it is.
type Kind string

// Kinds of notices of an engine. Err of Uncommitted is the handler's error or a
// *idem.CommitError. A notice of a queued write has a context without values, because the
// call that it belongs to is over.
const (
	Keyless          Kind = "keyless"           // a request without a key begins, under a random one
	Claimed          Kind = "claimed"           // a first attempt has its claim
	TookOver         Kind = "took_over"         // a later attempt has its claim
	Executed         Kind = "executed"          // a handler has returned, or panicked
	Replayed         Kind = "replayed"          // answered with a recorded outcome
	InFlight         Kind = "in_flight"         // answered with ErrInFlight
	Accepted         Kind = "accepted"          // accepted for later, or answered with ErrAccepted
	Unknown          Kind = "outcome_unknown"   // answered with ErrOutcomeUnknown
	Reused           Kind = "key_reused"        // answered with ErrKeyReused
	LimitExceeded    Kind = "limit_exceeded"    // answered with ErrLimitExceeded
	Paused           Kind = "paused"            // answered with ErrPaused
	Completed        Kind = "completed"         // an attempt's result is recorded
	Failed           Kind = "failed"            // an attempt's terminal failure is recorded
	Released         Kind = "released"          // ended without outcome, the key is free
	Parked           Kind = "parked"            // ended or lapsed, its outcome is not known
	StepRecorded     Kind = "step_recorded"     // a step ran, its outcome is recorded
	StepReplayed     Kind = "step_replayed"     // a step was skipped, it is recorded
	StepInterrupted  Kind = "step_interrupted"  // an at-most-once step began and has no outcome
	Compensated      Kind = "step_compensated"  // a step was undone
	Uncommitted      Kind = "uncommitted"       // nothing of a unit of work was committed for certain
	ResultOmitted    Kind = "result_omitted"    // an outcome is recorded without its result
	LeaseLost        Kind = "lease_lost"        // an attempt no longer has its claim
	OutOfTime        Kind = "out_of_time"       // too little time was left to take a claim
	StoreUnavailable Kind = "store_unavailable" // the store could not be reached before the claim
	CircuitOpened    Kind = "circuit_opened"    // calls have found the store down, further ones do not ask it
	CircuitClosed    Kind = "circuit_closed"    // the store has answered again
	FailedOpen       Kind = "failed_open"       // the store is down, the handler runs and nothing is recorded
	Unreadable       Kind = "record_unreadable" // a record or a step's result cannot be read, the call failed
	Withdrawn        Kind = "withdrawn"         // a claim without a reply was taken back
	OutcomeQueued    Kind = "outcome_queued"    // a write is kept for later; in state Completed, the result alone
	OutcomeLanded    Kind = "outcome_landed"    // a queued write was written
	OutcomeDropped   Kind = "outcome_dropped"   // a queued write was given up
)

// Kinds of notices of calls in shadow, one for each call: what would have been answered. State
// of ShadowExecuted is the one that the record would be in; of ShadowDuplicate it says with what
// the handler would not have run: a replay (completed, failed), idem.ErrInFlight (in_progress)
// or idem.ErrOutcomeUnknown (unknown).
const (
	ShadowExecuted   Kind = "shadow_executed"   // the handler would have run
	ShadowDuplicate  Kind = "shadow_duplicate"  // answered without it
	ShadowReused     Kind = "shadow_key_reused" // answered with ErrKeyReused
	ShadowRefused    Kind = "shadow_refused"    // refused by Err, such as for a missing key
	ShadowUnobserved Kind = "shadow_unobserved" // not known: the store could not be reached, or the input not be read
)

// Kinds of notices of a sweep. In a dry run they say what would be done. A record that cannot
// be read is [Unreadable] here too.
const (
	SweepParked    Kind = "sweep_parked"    // a lapsed claim became unknown
	SweepPostponed Kind = "sweep_postponed" // it still runs, is paused, or could not be asked about yet
	SweepFailed    Kind = "sweep_failed"    // a record could not be handled
	Abandoned      Kind = "abandoned"       // lapsed and repeatable, or released with steps, and no call has come
	Probed         Kind = "probed"          // the provider was asked, and the outcome stays unknown
	Resolved       Kind = "resolved"        // an unknown outcome was found out
	Escalated      Kind = "escalated"       // a question was escalated
	NotStarted     Kind = "not_started"     // accepted work ended as failed: no worker started it in time
)
