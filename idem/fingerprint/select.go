package fingerprint

import (
	"fmt"
	"strings"

	"github.com/idem-go/idempotency/idem/internal/canonical"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Select says which parts of a JSON input its fingerprint covers: either only
// some, or all without some. Parts are named by JSON pointer (RFC 6901), such as
// "/customer/id" or "/items/0"; "~1" stands for a slash in a name, "~0" for a
// tilde. The zero value covers everything.
//
// Changing a selection changes fingerprints, so a retry across that deployment
// may be refused as a reused key.
//
// A Select may be used by any number of goroutines, as long as it is not changed.
type Select struct {
	// Only lists the parts that count. Each must be in every input, null included:
	// where one is missing the input is refused with a [*NotCanonicalError], since
	// two inputs without it would look the same. The list's order does not matter.
	Only []string
	// Without lists the parts that do not count, such as a time of sending. They
	// may be missing. A part of an array goes with its place: what follows it moves
	// up.
	Without []string
}

// Check reports what is wrong with a selection, as a [*protocol.ConfigError]: both lists
// filled, a text that is no JSON pointer, a pointer inside another one, or nothing
// left. A nil Select is fine.
func (s *Select) Check() error {
	if s == nil {
		return nil
	}
	invalid := func(format string, args ...any) error {
		return &protocol.ConfigError{What: "fingerprint selection", Problem: fmt.Sprintf(format, args...)}
	}
	if len(s.Only) > 0 && len(s.Without) > 0 {
		return invalid("Only and Without are both set: use one of them")
	}
	pointers := s.Only
	if len(pointers) == 0 {
		pointers = s.Without
	}
	for i, pointer := range pointers {
		if pointer == "" && len(s.Without) > 0 {
			return invalid("Without names the whole input, which leaves nothing to tell two inputs apart: name fields")
		}
		if err := canonical.CheckPointer(pointer); err != nil {
			return invalid("%v", err)
		}
		for j, other := range pointers {
			if i != j && (other == pointer || strings.HasPrefix(other, pointer) && other[len(pointer)] == '/') {
				return invalid("%q lies inside %q: name it once", other, pointer)
			}
		}
	}
	return nil
}

func (s *Select) only() bool { return s != nil && len(s.Only) > 0 }

func missingError(pointer string) error {
	return &NotCanonicalError{
		Reason: fmt.Sprintf("the field %.64q is missing and the fingerprint depends on it: send it", pointer),
		Offset: -1,
	}
}
