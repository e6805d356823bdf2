package idem

import (
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/idem/internal/canonical"
)

// CheckPointer says what is wrong with a text that is no JSON pointer (RFC 6901), for
// wrappers that check their pointers before the first call.
func CheckPointer(pointer string) error { return canonical.CheckPointer(pointer) }

// ValuesAt returns the parts of a key to which JSON pointers lead in a JSON text, for
// wrappers that read keys. A part is a string that is not empty, or a plain integer,
// whose digits are taken as they are written: 42 and "42" are one part. Anything else
// gives an error that matches [ErrKeyInvalid], since what is not there must not become
// everybody's key. So does a member on the way that is there twice, or that differs from
// another one in its case alone: another reader could see the other one. Errors call the
// text by noun, such as "event". The text is read once.
func ValuesAt(text []byte, noun string, pointers ...string) ([]string, error) {
	values, err := canonical.Values(text, noun, pointers...)
	if _, ok := errors.AsType[*canonical.ValueError](err); err != nil && !ok && len(pointers) > 0 {
		err = fmt.Errorf("the value at %q of the %s cannot be read: %w", pointers[0], noun, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyInvalid, err)
	}
	return values, nil
}
