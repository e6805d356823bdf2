package idem

import (
	"reflect"

	"github.com/idem-go/idempotency/idem/internal/codec"
)

// Result is what [Run] returns: the handler's result and what is known of its outcome.
type Result[Out any] struct {
	// Value is the handler's result, decoded from what is recorded.
	Value Out
	// Outcome says whether it was replayed, of which attempt it is, and until when it is kept.
	Outcome Outcome
}

// CheckResultType reports a type that encoding/json cannot encode, such as a channel
// or a function, and one of which it would see nothing, such as an [io.Reader] or a struct whose
// fields are all unexported, as a [*ConfigError]; also at any depth. Types with methods of
// their own for encoding are taken at their word. What an interface will hold is not known:
// a wrapper checks its type if the result is encoded as {}.
func CheckResultType(t reflect.Type) error { return codec.CheckResult(t) }
