package idem

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

var (
	errPanicked = errors.New("idem: the handler panicked")
	errLapsed   = errors.New("idem: the attempt's process ended or froze before it recorded an outcome")
)

// Errors of a call that gets no outcome. Use errors.Is to tell them apart.
var (
	// ErrInFlight: another attempt holds the claim; an [*InFlightError] says until when.
	ErrInFlight = errors.New("idem: another attempt with this key is in flight")
	// ErrAccepted: the work is accepted for later and has not been claimed.
	ErrAccepted = errors.New("idem: the work is accepted and waits for its worker")
	// ErrKeyReused: the key belongs to another input; a [*ReusedError] says more.
	ErrKeyReused = errors.New("idem: the key was already used with another input; use a new key for a new request")
	// ErrOutcomeUnknown: an earlier attempt may have taken effect; the record must be resolved.
	ErrOutcomeUnknown = errors.New("idem: an earlier attempt may have taken effect and its outcome is unknown; resolve " +
		"the record before trying again")
	// ErrOutcomeUnavailable: an [*OutcomeUnavailableError] has what was kept of the result.
	ErrOutcomeUnavailable = errors.New("idem: the operation was completed, but its result could not be kept")
	// ErrOutOfTime: the handler did not run. Also the cause of its context when the guard ends it.
	ErrOutOfTime = errors.New("idem: too little time is left before the deadline")
	// ErrLeaseLost: the attempt has lost its claim, or cannot prove it: its context's cause then.
	ErrLeaseLost = errors.New("idem: the lease is lost")
	// ErrNotCommitted: a unit of work, or an outcome in atomic mode; see [*CommitError].
	ErrNotCommitted = errors.New("idem: the outcome was not committed for certain; the same call finds out")
	// ErrKeyInvalid: the key's parts cannot be used.
	ErrKeyInvalid = errors.New("idem: the key is invalid")
)

// configError is a mistake in how something is declared or called, with what to do.
func configError(what, format string, args ...any) error {
	return &ConfigError{What: what, Problem: fmt.Sprintf(format, args...)}
}

// InFlightError says when an attempt in flight will have ended. It matches [ErrInFlight], and if Lost [ErrLeaseLost].
type InFlightError struct {
	// LeaseLeft is the time until the lease and the margin are over, at least zero.
	LeaseLeft time.Duration
	// Attempt is the number of the attempt in flight.
	Attempt int
	// Lost is set when the caller's own attempt ran and lost its claim.
	Lost bool
}

func (e *InFlightError) Error() string {
	if e.Lost && e.Attempt == 0 {
		return fmt.Sprintf("%v; its record no longer exists or cannot be read", ErrLeaseLost)
	}
	if e.Lost {
		return fmt.Sprintf("%v; attempt %d has taken the claim since", ErrLeaseLost, e.Attempt)
	}
	return fmt.Sprintf("%v (attempt %d, its lease ends in %v)", ErrInFlight, e.Attempt,
		e.LeaseLeft.Round(time.Millisecond))
}

func (e *InFlightError) Is(target error) bool {
	return target == ErrInFlight || e.Lost && target == ErrLeaseLost
}

// ReusedError says what is known of the input that the key belongs to. It matches [ErrKeyReused].
type ReusedError struct {
	// State of the record.
	State State
	// Result is the recorded result, encoded, if it lies in the record itself.
	Result []byte
}

func (e *ReusedError) Error() string { return ErrKeyReused.Error() }

func (e *ReusedError) Is(target error) bool { return target == ErrKeyReused }

// OutcomeUnavailableError has what is kept; it matches [ErrOutcomeUnavailable].
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
// have been (Ambiguous); nothing of it is written later. The same call, sent again, finds out. It
// matches [ErrNotCommitted], and [ErrOutcomeUnknown] if the record says so.
type CommitError struct {
	// State that the record is in as far as is known. Released or absent: the same call runs the
	// handler again. Unknown: it does not. InProgress: it finds out once the lease is over.
	State State
	// Ambiguous is set if the commit may have landed.
	Ambiguous bool
	// Err is why. errors.Is does not see it: a store that was unavailable then says
	// nothing of whether anything was executed.
	Err error
}

func (e *CommitError) Error() string {
	if e.Ambiguous {
		return fmt.Sprintf("idem: the outcome and its writes may have been committed, which could not be confirmed: %v",
			e.Err)
	}
	why := e.Err
	if failed, ok := errors.AsType[*StoreError](why); ok {
		// What the store could not say is known by now.
		why = failed.Err
	}
	return fmt.Sprintf("idem: the outcome and its writes were not committed: %v", why)
}

func (e *CommitError) Is(target error) bool {
	return target == ErrNotCommitted || target == ErrOutcomeUnknown && e.State == Unknown
}

// RecordedError is a terminal failure as later callers get it: branch on its Type or Code.
type RecordedError struct{ Failure }

func (e *RecordedError) Error() string { return e.Message }

// StepInterruptedError is what an AtMostOnce step returns that began in an earlier
// attempt and left no outcome: it may have taken effect, and is not run again. While the step is open,
// the operation ends as unknown, whatever its handler returns.
type StepInterruptedError struct {
	// Name of the step.
	Name string
	// Err is why it could not be closed; nil if the other system was not asked.
	Err error
	// RetryAt is from when on the other system's "not found" is proof that the step had no effect;
	// zero if there is no such time. Until then a repeatable operation is released, not parked.
	RetryAt time.Time
}

func (e *StepInterruptedError) Error() string {
	text := fmt.Sprintf("idem: an at-most-once step was interrupted and is not run again; find out what became of "+
		"it: step %q", e.Name)
	if !e.RetryAt.IsZero() {
		text += fmt.Sprintf(": \"not found\" is not conclusive before %s, send the request again then",
			e.RetryAt.UTC().Format(time.RFC3339))
	}
	if e.Err != nil {
		text += fmt.Sprintf(": %v", e.Err)
	}
	return text
}

func (e *StepInterruptedError) Unwrap() error { return e.Err }

// StepUnavailableError is what a step gives whose function succeeded and whose result could not be kept, in every
// attempt. It is never run again, and its compensation, which would need the result, cannot undo it.
type StepUnavailableError struct {
	// Name of the step.
	Name string
	// Reason says why the result was not kept.
	Reason string
}

func (e *StepUnavailableError) Error() string {
	return fmt.Sprintf("idem: the step is done, but its result could not be kept; "+
		"give it a result that JSON and the store can keep: step %q: %s", e.Name, e.Reason)
}

// StepLimitError says that a step did not run because the record might have no room for its outcome:
// see [protocol.StepRoom]. A handler that cannot continue without the step returns it marked as
// [Permanent]: the record has room for undoing the steps before it.
type StepLimitError struct {
	// Name of the step.
	Name string
	// Taken is what the operation's steps take, of Limit, in bytes.
	Taken, Limit int
}

func (e *StepLimitError) Error() string {
	return fmt.Sprintf("idem: the operation has too many steps for one record; let a step do several things, "+
		"or split the operation: step %q: the steps before it take %d of %d bytes", e.Name, e.Taken, e.Limit)
}

// failureOf describes an error as it is recorded.
func failureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	err = Unmark(err)
	if rec, ok := err.(*RecordedError); ok {
		f := rec.Failure
		return &f
	}
	f := Failure{Message: textOf(err, err.Error), Type: typeName(err)}
	if coded, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); ok {
		f.Code = textOf(err, coded.ErrorCode)
	}
	return &f
}

// textOf asks an error for a text. An error that panics over it, such as a nil
// pointer in an interface, must not cost the record of the attempt.
func textOf(err error, ask func() string) (s string) {
	defer func() {
		if recover() != nil {
			s = "an error of type " + typeName(err) + " that cannot say what it is"
		}
	}()
	return protocol.FailureText(strings.ToValidUTF8(ask(), "\uFFFD"))
}

// typeName is the error's type as aws-lambda-go reports it: without package path
// and pointer.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}
