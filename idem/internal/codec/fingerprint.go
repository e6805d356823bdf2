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
		return "", &fingerprint.NotCanonicalError{Reason: "a string of the input is not valid UTF-8: send bytes as []byte", Offset: -1}
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
