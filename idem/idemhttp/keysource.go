package idemhttp

import (
	"context"
	"fmt"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/canonical"
)

// KeySource says where the key of a request is: [KeyHeader], [KeyPointer] or [KeyFrom]. The zero
// value is the header [DefaultKeyHeader].
type KeySource struct {
	header, pointer string
	from            KeyFunc
}

// KeyHeader takes the key from another header than [DefaultKeyHeader]. An empty name panics.
func KeyHeader(name string) KeySource {
	mustName("KeyHeader", name)
	return KeySource{header: name}
}

// KeyPointer takes the key from a field of the body, named by a JSON pointer (RFC 6901) such as
// "/id", for producers that set no headers. The body is read as JSON, whatever its declared type.
// The field is a string, or a plain integer whose digits are the key as they are written. The
// rules for bare keys apply to both (see [Options.MinKey] for short ids). An empty pointer panics.
//
// It is not for signed requests, such as webhooks: a forged request that has the id of a real one takes
// its key, and the real one is refused as a reuse. Verify the signature, then call [idem.Do] by the id,
// as the example of a webhook does.
func KeyPointer(pointer string) KeySource {
	mustName("KeyPointer", pointer)
	return KeySource{pointer: pointer}
}

// KeyFrom takes the key from a function of the service. [Options.MinKey] cannot be set with it;
// only the limits of [idem.Operation.Key] apply. A nil function panics.
func KeyFrom(f KeyFunc) KeySource {
	if f == nil {
		panic(&idem.ConfigError{What: "idemhttp.KeyFrom", Problem: "the function is nil"})
	}
	return KeySource{from: f}
}

// KeyFunc finds the key of a request. It returns [ErrNoKey] or "" if there is none. The answer is
// then 400, and also after an error that matches [idem.ErrKeyInvalid]. Any other error goes to the
// runtime unchanged. It must be safe for concurrent use.
type KeyFunc func(ctx context.Context, r *Request) (string, error)

func (s KeySource) isZero() bool { return s.header == "" && !s.inBody() }

// inBody reports whether the key may be in the body.
func (s KeySource) inBody() bool { return s.pointer != "" || s.from != nil }

// check reports what is wrong with the source; of says whose it is.
func (s KeySource) check(of string) error {
	switch err := canonical.CheckPointer(s.pointer); {
	case err != nil:
		return mistake("%sKeyPointer: %v", of, err)
	case s.header != "" && !isToken(s.header):
		return mistake("%sKeyHeader %q is not a header name", of, s.header)
	}
	return nil
}

// place tells clients where the key must be, if that is known.
func (d *declared) place() string {
	switch {
	case d == nil || d.Key.from != nil:
		return ""
	case d.Key.pointer != "":
		return fmt.Sprintf(" in the body's field %q", d.Key.pointer)
	}
	return " in the header " + d.Key.header
}
