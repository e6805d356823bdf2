package idem

import (
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/idem/internal/canonical"
)

// CheckPointer says what is wrong with a text that is no JSON pointer (RFC 6901). The
// empty pointer leads to the whole text. It is for wrappers that read keys, which
// check their pointers before the first call.
func CheckPointer(pointer string) error { return canonical.CheckPointer(pointer) }

// ValuesAt returns the parts of a key to which JSON pointers lead in a JSON text, in
// their order. A part is a string that is not empty, or a plain integer, whose digits
// are taken as they are written: 42 and "42" are one part. Names are case-sensitive.
//
// Null, a missing member, a bool, a number with a fraction or an exponent, an object,
// an array and a text that is not valid JSON in UTF-8 give an error that matches
// [ErrKeyInvalid]: what is not there must not become everybody's key. So does a member
// on the way that is there twice, or that another one equals but for its case: another
// reader, such as a Go handler, could see the other one. Errors call the text by noun,
// such as "event".
//
// It is for wrappers that read keys. The text is read once, whatever the number of
// pointers.
func ValuesAt(text []byte, noun string, pointers ...string) ([]string, error) {
	values, err := canonical.Values(text, noun, pointers...)
	if _, ok := errors.AsType[*canonical.ValueError](err); err != nil && !ok {
		err = fmt.Errorf("the value at %q of the %s cannot be read: %w", pointers[0], noun, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyInvalid, err)
	}
	return values, nil
}
