package fingerprint

import (
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/idem/internal/canonical"
)

// ErrNotCanonical: the input is not JSON, or is JSON that two readers could
// understand differently, so no fingerprint can stand for it. It is the caller's
// mistake; read a [*NotCanonicalError] for what to change.
var ErrNotCanonical = errors.New("idem: the input has no canonical form")

// NotCanonicalError says why an input has no canonical form. It matches
// [ErrNotCanonical].
type NotCanonicalError struct {
	// Reason says what is wrong and what to do. It quotes one character of
	// the input at most.
	Reason string
	// Offset is the byte of the input at or after which the mistake lies, counted
	// from zero; -1 where it has no place, such as for a field that is missing.
	Offset int64
}

func (e *NotCanonicalError) Error() string {
	return fmt.Sprintf("%v: %v", ErrNotCanonical, (*canonical.Error)(e))
}

// Is makes the error match [ErrNotCanonical].
func (e *NotCanonicalError) Is(target error) bool { return target == ErrNotCanonical }

// notCanonical makes this package's error of the canonical form's.
func notCanonical(err error) error {
	if e, ok := errors.AsType[*canonical.Error](err); ok {
		return (*NotCanonicalError)(e)
	}
	return err
}
