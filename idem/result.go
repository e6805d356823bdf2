package idem

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Result is what [Run] returns: the handler's result and what is known of its outcome.
type Result[Out any] struct {
	// Value is the handler's result, decoded from what is recorded.
	Value Out
	// Outcome says whether it was replayed, of which attempt it is, and until when it is kept.
	Outcome Outcome
}

// throughCodec encodes v and decodes it again into out. It encodes by address, so that
// encoders with a pointer receiver work. A type's own encoder that panics fails to
// encode: the handler has succeeded, and that must be recorded.
func throughCodec[T any](v T, out *T) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, protocol.Panicked(fmt.Sprintf("idem: encoding %T", v), r)
		}
	}()
	if body, err = json.Marshal(&v); err != nil {
		return nil, protocol.Unquoted(fmt.Sprintf("idem: encoding %T", v), err)
	}
	if err = held(v, body); err != nil {
		return nil, err
	}
	if err = json.Unmarshal(body, out); err != nil {
		return body, protocol.Unquoted(fmt.Sprintf("idem: decoding %T again", v), err)
	}
	return body, nil
}

// held is [CheckResultType] of what an interface turns out to hold, if nothing of it has been
// encoded.
func held[T any](v T, body []byte) error {
	if reflect.TypeFor[T]().Kind() != reflect.Interface || string(body) != "{}" {
		return nil
	}
	return CheckResultType(reflect.TypeOf(v))
}

// decode decodes a recorded result, which err calls as what says. A type's own decoder that
// panics fails to decode.
func decode[T any](what string, body []byte, out *T) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = protocol.Panicked(fmt.Sprintf("idem: decoding %T", *out), r)
		}
		if err != nil {
			*out, err = *new(T), fmt.Errorf("%w: %w", ErrRecordUnreadable, err)
		}
	}()
	if err = json.Unmarshal(body, out); err != nil {
		return protocol.Unquoted(fmt.Sprintf("%s does not fit %T", what, *out), err)
	}
	return nil
}

// Encoded is a result as later calls read it, for those who record one from outside.
type Encoded struct {
	// Body is the result, encoded; Codec names how, empty for JSON.
	Body  []byte
	Codec string
	// ResponseVersion is the caller's version of the result's schema, at most 2^31-1; zero for none.
	ResponseVersion int
	// Check shows that later calls can read Body. Nil stands for any JSON.
	Check func(body []byte) error
	// Failed says that a handler with this result fails, which undoes its steps: an HTTP refusal.
	Failed bool
}

// Encode makes of a handler's result what [Do] records of it. A result that later calls
// could not read is an error.
func Encode[Out any](out Out) (Encoded, error) {
	if err := CheckResultType(reflect.TypeFor[Out]()); err != nil {
		return Encoded{}, err
	}
	var back Out
	body, err := throughCodec(out, &back)
	if err != nil {
		return Encoded{}, fmt.Errorf("idem: the result cannot be recorded: %w", err)
	}
	return Encoded{Body: body}, nil
}

// checkResult is [CheckResultType] with a memory.
func (e *Engine) checkResult(t reflect.Type) error { return e.shape(t, true).asResult(t) }

// CheckResultType reports a type that encoding/json cannot encode, such as a channel
// or a function, and one of which it would see nothing, such as an [io.Reader] or a struct whose
// fields are all unexported, as a [*ConfigError]; also at any depth. Types with methods of
// their own for encoding are taken at their word. What an interface will hold is not known:
// a wrapper checks its type if the result is encoded as {}.
func CheckResultType(t reflect.Type) error { return shapeOf(t, true).asResult(t) }

func (s *shape) asResult(t reflect.Type) error {
	switch {
	case s.never != nil:
		return &ConfigError{What: "result type " + t.String(), Problem: fmt.Sprintf("%v cannot be encoded as JSON: return data only", s.never)}
	case s.opaque != nil:
		return &ConfigError{What: "result type " + t.String(), Problem: unseen(s.opaque, "every caller would get an empty one")}
	}
	return nil
}
