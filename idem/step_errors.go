package idem

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a [Step], besides those of its function. Use errors.Is to tell them apart.
var (
	// ErrStepInterrupted: an at-most-once step began in an earlier attempt and left
	// no outcome. Read a [*StepInterruptedError] for which.
	ErrStepInterrupted = errors.New("idem: an at-most-once step was interrupted and is not run again; find out what became of it")
	// ErrStepUnavailable: a step took effect once and its result could not be kept.
	// Read a [*StepUnavailableError] for which.
	ErrStepUnavailable = errors.New("idem: the step is done, but its result could not be kept; give it a result that JSON and the store can keep")
	// ErrStepLimit: the record has no room for another step; a [*StepLimitError] says more.
	ErrStepLimit = errors.New("idem: the operation has too many steps for one record; let a step do several things, or split the operation")
)

// StepInterruptedError is what an AtMostOnce step returns that began in an earlier
// attempt and left no outcome: it may have taken effect, and is not run again.
// [Abort] returns it while a step is open or on its way. It matches [ErrStepInterrupted].
// While the step is open, the operation ends as unknown, whatever its declaration
// and whatever the handler returns; [StepConfig].Interrupted closes it.
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
	text := fmt.Sprintf("%v: step %q", ErrStepInterrupted, e.Name)
	if !e.RetryAt.IsZero() {
		text += fmt.Sprintf(": \"not found\" is not conclusive before %s, send the request again then", e.RetryAt.UTC().Format(time.RFC3339))
	}
	if e.Err != nil {
		text += fmt.Sprintf(": %v", e.Err)
	}
	return text
}

func (e *StepInterruptedError) Is(target error) bool { return target == ErrStepInterrupted }

func (e *StepInterruptedError) Unwrap() error { return e.Err }

// StepUnavailableError is what a step gives whose function succeeded and whose
// result could not be encoded or is too large for the store, in the attempt that ran
// it and in every later one. The step is done and never run again; it cannot be
// undone by its compensation, which would need the result. It matches
// [ErrStepUnavailable].
type StepUnavailableError struct {
	// Name of the step.
	Name string
	// Reason says why the result was not kept.
	Reason string
}

func (e *StepUnavailableError) Error() string {
	return fmt.Sprintf("%v: step %q: %s", ErrStepUnavailable, e.Name, e.Reason)
}

func (e *StepUnavailableError) Is(target error) bool { return target == ErrStepUnavailable }

// StepLimitError says that a step did not run because the record might have
// no room for its outcome: see [protocol.StepRoom]. It matches [ErrStepLimit]. A handler
// that cannot continue without the step returns it marked as [Permanent]: the steps
// before it are then undone; the record has room for that.
type StepLimitError struct {
	// Name of the step.
	Name string
	// Taken is what the operation's steps take, of Limit, in bytes.
	Taken, Limit int
}

func (e *StepLimitError) Error() string {
	return fmt.Sprintf("%v: step %q: the steps before it take %d of %d bytes", ErrStepLimit, e.Name, e.Taken, e.Limit)
}

func (e *StepLimitError) Is(target error) bool { return target == ErrStepLimit }
