package idem

import (
	"errors"
	"fmt"
	"time"
)

var errPanicked = errors.New("idem: the handler panicked")

// Errors of a call that gets no outcome. Use errors.Is to tell them apart.
var (
	// ErrInFlight: another attempt holds the claim; an [*InFlightError] says until when.
	ErrInFlight = errors.New("idem: another attempt with this key is in flight")
	// ErrAccepted: the work is accepted for later and has not been claimed.
	ErrAccepted = errors.New("idem: the work is accepted and waits for its worker")
	// ErrKeyReused: the key belongs to another input; a [*ReusedError] says more.
	ErrKeyReused = errors.New("idem: the key was already used with another input; use a new key for a new request")
	// ErrOutcomeUnknown: an earlier attempt may have taken effect. Sending the request
	// again changes nothing until the record is resolved.
	ErrOutcomeUnknown = errors.New("idem: an earlier attempt may have taken effect and its outcome is unknown; resolve the record before trying again")
	// ErrOutcomeUnavailable: the operation took effect once and its result could not
	// be kept; an [*OutcomeUnavailableError] has what was.
	ErrOutcomeUnavailable = errors.New("idem: the operation was completed, but its result could not be kept")
	// ErrOutOfTime: too little time was left to take a claim, and the handler did not
	// run. It is also the cause of the handler's context when the guard ends it.
	ErrOutOfTime = errors.New("idem: too little time is left before the deadline")
	// ErrLeaseLost: the attempt has lost its claim, or cannot prove it: its context's cause then.
	ErrLeaseLost = errors.New("idem: the lease is lost")
	// ErrNotCommitted: an outcome that commits with business writes, or without a
	// claim, was not committed for certain; a [*CommitError] says more.
	ErrNotCommitted = errors.New("idem: the outcome was not committed for certain; the same call finds out")
	// ErrKeyInvalid: the key's parts cannot be used.
	ErrKeyInvalid = errors.New("idem: the key is invalid")
)

// InFlightError says when an attempt in flight will have ended at the latest. It
// matches [ErrInFlight], and [ErrLeaseLost] if the caller's own attempt lost its claim.
type InFlightError struct {
	// LeaseLeft is the time until the lease is over, the observers' margin included; never negative.
	LeaseLeft time.Duration
	// Attempt is the number of the attempt in flight.
	Attempt int
	// Lost is set when the caller's own attempt ran and lost its claim.
	Lost bool
}

func (e *InFlightError) Error() string {
	if e.Lost && e.Attempt == 0 {
		return fmt.Sprintf("%v; its record is gone or cannot be read", ErrLeaseLost)
	}
	if e.Lost {
		return fmt.Sprintf("%v; attempt %d has taken the claim since", ErrLeaseLost, e.Attempt)
	}
	return fmt.Sprintf("%v (attempt %d, its lease ends in %v)", ErrInFlight, e.Attempt, e.LeaseLeft.Round(time.Millisecond))
}

func (e *InFlightError) Is(target error) bool {
	return target == ErrInFlight || e.Lost && target == ErrLeaseLost
}

// ReusedError says what is known of the input that the key belongs to. It is for
// the caller who owns the key: a tenant's, see [Operation.Key]. It matches
// [ErrKeyReused].
type ReusedError struct {
	// State of the record.
	State State
	// Result is the recorded result, encoded; nil if there is none, or if it does not
	// lie in the record itself.
	Result []byte
}

func (e *ReusedError) Error() string { return ErrKeyReused.Error() }

func (e *ReusedError) Is(target error) bool { return target == ErrKeyReused }

// OutcomeUnavailableError carries what was kept of a result that could not be
// stored. It matches [ErrOutcomeUnavailable].
type OutcomeUnavailableError struct {
	// Summary is what the caller's codec chose to keep, such as an HTTP status.
	Summary []byte
	// Reason says why the result was not kept; it is empty on replay.
	Reason string
}

func (e *OutcomeUnavailableError) Error() string {
	if e.Reason == "" {
		return ErrOutcomeUnavailable.Error()
	}
	return ErrOutcomeUnavailable.Error() + ": " + e.Reason
}

func (e *OutcomeUnavailableError) Is(target error) bool { return target == ErrOutcomeUnavailable }

// CommitError says that an attempt ran and that its outcome was not committed, or may not
// have been. The commit has landed, or cannot land any more, or is in doubt (Ambiguous);
// nothing of it is written later. The same call, sent again, finds out. It matches
// [ErrNotCommitted], and [ErrOutcomeUnknown] if the record says so.
type CommitError struct {
	// State that the record is in as far as is known. Released or absent: the same call
	// runs the handler again. Unknown: it does not. InProgress: it finds out once the
	// lease is over.
	State State
	// Ambiguous is set if the commit may have landed.
	Ambiguous bool
	// Err is why. errors.Is does not see it: a store that was unavailable then says
	// nothing of whether anything was executed.
	Err error
}

func (e *CommitError) Error() string {
	if e.Ambiguous {
		return fmt.Sprintf("idem: the outcome and its writes may have been committed, which could not be confirmed: %v", e.Err)
	}
	why := e.Err
	var failed *StoreError
	if errors.As(why, &failed) {
		// What the store could not say is known by now.
		why = failed.Err
	}
	return fmt.Sprintf("idem: the outcome and its writes were not committed: %v", why)
}

func (e *CommitError) Is(target error) bool {
	return target == ErrNotCommitted || target == ErrOutcomeUnknown && e.State == Unknown
}

// RecordedError is a terminal failure as later callers get it. errors.Is against
// the first caller's sentinel does not survive being recorded; branch on Type or
// Code.
type RecordedError struct{ Failure }

func (e *RecordedError) Error() string { return e.Message }
