// Package codec makes JSON of inputs and results and reads it again. It finds out what
// encoding/json makes of a type before anything runs: a result that cannot be encoded is lost
// after its effect, and inputs that all look the same are taken for one another.
package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Through encodes v and decodes it again into out. Where it fails there is no body, and out is v. It
// encodes by address, so that encoders with a pointer receiver work. A type's own encoder that
// panics fails to encode: the handler has succeeded, and that must be recorded.
func Through[T any](v T, out *T) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = protocol.RedactPanic(fmt.Sprintf("idem: encoding %T", v), r)
		}
		if err != nil {
			body, *out = nil, v
		}
	}()
	if body, err = json.Marshal(&v); err != nil {
		return nil, protocol.Redact(fmt.Sprintf("idem: encoding %T", v), err)
	}
	if err = held(v, body); err != nil {
		return nil, err
	}
	if err = json.Unmarshal(body, out); err != nil {
		return nil, protocol.Redact(fmt.Sprintf("idem: decoding %T again", v), err)
	}
	return body, nil
}

// held is [CheckResult] of what an interface turns out to hold, if nothing of it has been
// encoded.
func held[T any](v T, body []byte) error {
	if reflect.TypeFor[T]().Kind() != reflect.Interface || string(body) != "{}" {
		return nil
	}
	return checkResult(reflect.TypeOf(v), false)
}

// Decode decodes what is recorded, which err calls as what says. A type's own decoder that
// panics fails to decode.
func Decode[T any](what string, body []byte, out *T) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = protocol.RedactPanic(fmt.Sprintf("idem: decoding %T", *out), r)
		}
		if err != nil {
			*out, err = *new(T), fmt.Errorf("%w: %w", protocol.ErrRecordUnreadable, err)
		}
	}()
	if err = json.Unmarshal(body, out); err != nil {
		return protocol.Redact(fmt.Sprintf("%s does not fit %T", what, *out), err)
	}
	return nil
}

// DecodeResult is [Decode] of a recorded result.
func DecodeResult[T any](body []byte, out *T) error {
	if err := Decode("the recorded result", body, out); err != nil {
		return fmt.Errorf("%w; if package reconcile recorded the result, resolve it again with the handler's result type "+
			"and Resolution.Replace", err)
	}
	return nil
}

// CheckResult reports a type that encoding/json makes no result of: a function, a channel, a
// reader or a struct without exported fields, at any depth. A type with an encoder of its own
// is taken at its word.
func CheckResult(t reflect.Type) error { return checkResult(t, true) }

func checkResult(t reflect.Type, addressed bool) error {
	if bad := shapeOf(t, addressed).bad; bad != nil {
		return &protocol.ConfigError{What: "result type " + t.String(),
			Problem: problem(bad, "every caller would get an empty one")}
	}
	return nil
}

// Fingerprint takes the fingerprint of an input, which is encoded by address too.
func Fingerprint[In any](in *In) (protocol.Fingerprint, error) {
	switch v := any(*in).(type) {
	case json.RawMessage:
		return fingerprint.JSON(v, nil)
	case []byte:
		return fingerprint.Bytes(v), nil
	case string:
		return fingerprint.Bytes([]byte(v)), nil
	}
	s := shapeOf(reflect.TypeFor[In](), true)
	bad := s.bad
	var raw []byte
	if bad == nil {
		var err error
		if raw, err = json.Marshal(in); err != nil {
			return "", &protocol.ConfigError{What: "input", Problem: fmt.Sprintf("%T cannot be encoded as JSON: %v", *in, err)}
		}
		if s.open {
			bad = badIn(reflect.ValueOf(in).Elem())
		}
	}
	if bad != nil {
		return "", &protocol.ConfigError{What: "input", Problem: problem(bad, "all inputs would look the same")}
	}
	// encoding/json writes every invalid byte as the same escape: inputs that differ
	// there must not become equal.
	if bytes.Contains(raw, []byte(`\ufffd`)) && invalidText(reflect.ValueOf(in)) {
		return "", &fingerprint.NotCanonicalError{Reason: "a string of the input is not valid UTF-8: send bytes as []byte",
			Offset: -1}
	}
	return fingerprint.JSON(raw, nil)
}

// badIn returns a bad type of a value behind an interface, nil if there is none.
func badIn(v reflect.Value) (bad reflect.Type) {
	holds(v, func(v reflect.Value) bool {
		if v.Kind() == reflect.Interface && !v.IsNil() {
			bad = shapeOf(v.Elem().Type(), false).bad
		}
		return bad != nil
	})
	return bad
}

// invalidText reports whether a string that encoding/json writes of the value is not
// valid UTF-8. The value has been encoded before.
func invalidText(v reflect.Value) bool {
	return holds(v, func(v reflect.Value) bool { return v.Kind() == reflect.String && !utf8.ValidString(v.String()) })
}
