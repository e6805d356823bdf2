package fingerprint

import (
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/idem/internal/canonical"
	"github.com/idem-go/idempotency/idem/protocol"
)

// JSON returns the fingerprint of a JSON text: of its meaning, not of
// its bytes. White space, the order of members, escapes and the way numbers are
// written make no difference.
//
// The canonical form is that of RFC 8785, but plain integers are exact at any size.
// A number with a fraction or an exponent stands for the shortest decimal of the
// double next to it, a plain integer for itself, and two numbers are equal if they
// stand for the same: 1, 1.0 and 10e-1 are one number, and so are
// 9007199254740993.0 and 9007199254740992, but not 9007199254740993.
//
// Refused are, with a [*NotCanonicalError], which matches [ErrNotCanonical]:
//
//   - Numbers beyond the doubles.
//   - Numbers with a fraction or an exponent and more than 17 significant digits, unless
//     they are a double exactly: 1.000000000000000001 would be the same input as 1. Send
//     such amounts as strings, or as integers of a smaller unit.
//   - More than 100 numbers closer to zero than 1e-307, zero aside, and nesting beyond 200
//     deep, which take long to read.
//   - Duplicate member names, invalid UTF-8 (half surrogate pairs included), a byte order
//     mark, and anything but exactly one value.
//
// These hold for the whole text, also for parts left out.
//
// A hostile text costs at most twelve times as much as a plain one of its size.
//
// sel says which parts count; nil means all. It is a [*protocol.ConfigError] if it is
// contradictory, see [Select.Check].
func JSON(raw []byte, sel *Select) (protocol.Fingerprint, error) {
	var b Builder
	b.JSON("", raw, sel)
	return b.Sum()
}

// Bytes returns the fingerprint of bytes as they are. It never equals
// the fingerprint of a JSON text.
func Bytes(raw []byte) protocol.Fingerprint {
	var b Builder
	b.Bytes("", raw)
	return b.digest()
}

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
