package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of a store for a whole call. Use errors.Is to tell them apart.
var (
	// ErrStoreUnavailable: the store did not do what it was asked for. As the answer to
	// a call it means that the handler did not run.
	ErrStoreUnavailable = errors.New("idem: the store is unavailable; nothing was executed, try again")
	// ErrRecordUnreadable: the record is damaged or of a newer version; it is never
	// taken for absent.
	ErrRecordUnreadable = errors.New("idem: the record cannot be read; deploy the version that wrote it, or have an " +
		"operator look at it")
)

// ErrLimitExceeded: the store makes no record for the tenant's operation for now; a
// [*LimitExceededError] says more. Nothing was written.
var ErrLimitExceeded = errors.New("idem: the tenant has too many new keys; nothing has taken effect, try again later")

// ErrNotFound: there is no such record, or no such message.
var ErrNotFound = errors.New("idem: no such record")

// ConflictError is how a store says that a write's condition did not hold.
type ConflictError struct {
	// Existing is the conflicting record, nil if there was none.
	Existing *Record
}

func (e *ConflictError) Error() string {
	if e.Existing == nil {
		return "idem: the write's condition failed: there is no record"
	}
	return fmt.Sprintf("idem: the write's condition failed: the record is %s, attempt %d", e.Existing.State,
		e.Existing.Attempt)
}

// LimitExceededError is how a store with a limit on new keys, such as one of package limit, refuses
// a claim or a commit that would make a record. It matches [ErrLimitExceeded].
type LimitExceededError struct {
	// RetryAfter is when it is of use to try again at the earliest, a second at least.
	RetryAfter time.Duration
}

func (e *LimitExceededError) Error() string { return ErrLimitExceeded.Error() }

// Is makes the error match [ErrLimitExceeded].
func (e *LimitExceededError) Is(target error) bool { return target == ErrLimitExceeded }

// StoreError is how a store says that a call did not succeed for reasons of its
// own. It matches [ErrStoreUnavailable].
type StoreError struct {
	// Op is the store's method; empty for a call outside of one.
	Op string
	// Ambiguous is set if the write may have been applied, or may still be.
	Ambiguous bool
	// Down is set if the store did not work for this call: it could not be reached, did not
	// answer in time, throttled every try, or answered every try with an HTTP status of 500 or
	// more. It is not set after any other answer, such as that a permission is missing, nor if
	// nothing was sent, for example without credentials. idem.FailOpen needs it.
	Down bool
	// Throttled is set in addition to Down if a try was answered with too many requests: the store can
	// be reached, and the engine's circuit stays closed.
	Throttled bool
	// ResultNotStored is set if a result could not be stored outside its record in the time for
	// it. The record was not touched, unless the error is Ambiguous: then it may have the end with the result.
	ResultNotStored bool
	// Err is the store's own error.
	Err error
}

func (e *StoreError) Error() string {
	text := "idem: store: "
	if e.Op != "" {
		text += e.Op + ": "
	}
	if e.Ambiguous {
		text += "may have been applied: "
	}
	return text + fmt.Sprint(e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }

// Is makes the error match [ErrStoreUnavailable].
func (e *StoreError) Is(target error) bool { return target == ErrStoreUnavailable }

// Unsent is the error of a call that was made before a write. The write was not sent, so a [*StoreError]
// is not Ambiguous.
func Unsent(err error) error {
	failed, ok := errors.AsType[*StoreError](err)
	if !ok || !failed.Ambiguous {
		return err
	}
	own := *failed
	own.Ambiguous = false
	return &own
}

// TooLargeError is how a store says that a result exceeds what it can keep.
// Nothing was written to the record.
type TooLargeError struct {
	// Size of the result and the store's Limit, in bytes.
	Size, Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("idem: a result of %d bytes exceeds the store's limit of %d", e.Size, e.Limit)
}

// RefusedError is how a store says that the unit of work of a [Finish] was refused: this
// try has written neither the unit nor the outcome.
type RefusedError struct {
	// Err is what the attempt's caller gets as the handler's error; its class says
	// what it means for the record.
	Err error
	// Ambiguous is set if an earlier try of the same write got no answer and may still
	// arrive.
	Ambiguous bool
}

func (e *RefusedError) Error() string { return fmt.Sprintf("idem: the writes were refused: %v", e.Err) }

func (e *RefusedError) Unwrap() error { return e.Err }

// Answers reports whether the store's error is an answer that it worked out: a [*ConflictError], or
// one that matches [ErrRecordUnreadable] or [ErrLimitExceeded]. A [*StoreError] is none, whatever
// it wraps.
func Answers(err error) bool {
	_, failed := errors.AsType[*StoreError](err)
	_, conflict := errors.AsType[*ConflictError](err)
	return !failed && (conflict || errors.Is(err, ErrRecordUnreadable) || errors.Is(err, ErrLimitExceeded))
}

// ConfigError is a mistake in how the library is set up, found before anything
// runs where possible.
type ConfigError struct {
	// What names the thing that is set up wrongly. Problem says how, and what to do.
	What, Problem string
}

func (e *ConfigError) Error() string {
	if strings.HasPrefix(e.Problem, "is ") {
		return "idem: " + e.What + " " + e.Problem
	}
	return "idem: " + e.What + ": " + e.Problem
}
