package idem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem/fingerprint"
)

// fingerprintOf takes the fingerprint of an input, which is encoded by address too.
func fingerprintOf[In any](e *Engine, in *In) (Fingerprint, error) {
	switch v := any(*in).(type) {
	case json.RawMessage:
		return fingerprint.JSON(v, nil)
	case []byte:
		return fingerprint.Bytes(v), nil
	case string:
		return fingerprint.Bytes([]byte(v)), nil
	}
	s := e.shape(reflect.TypeFor[In](), true)
	blind := s.opaque
	var raw []byte
	if blind == nil {
		var err error
		if raw, err = json.Marshal(in); err != nil {
			return "", &ConfigError{What: "input", Problem: fmt.Sprintf("%T cannot be encoded as JSON: %v", *in, err)}
		}
		if s.open {
			blind = e.opaqueIn(reflect.ValueOf(in).Elem())
		}
	}
	if blind != nil {
		return "", &ConfigError{What: "input", Problem: unseen(blind, "all inputs would look the same")}
	}
	// encoding/json writes every invalid byte as the same escape: inputs that differ
	// there must not become equal.
	if bytes.Contains(raw, []byte(`\ufffd`)) && e.invalidText(reflect.ValueOf(in)) {
		return "", &fingerprint.NotCanonicalError{Reason: "a string of the input is not valid UTF-8: send bytes as []byte", Offset: -1}
	}
	return fingerprint.JSON(raw, nil)
}

// opaqueIn returns the type of a value behind an interface that looks like every other
// one of its type, nil if there is none.
func (e *Engine) opaqueIn(v reflect.Value) (blind reflect.Type) {
	behind := false
	e.walk(v, true, func(v reflect.Value, pointed bool) visit {
		if behind {
			if blind = e.shape(v.Type(), false).opaque; blind != nil {
				return stop
			}
		}
		behind = v.Kind() == reflect.Interface
		if (typeAt{v.Type(), pointed}).encodesItself() || !e.shape(v.Type(), pointed).open {
			return skip
		}
		return enter
	})
	return blind
}

// invalidText reports whether a string that encoding/json writes of the value is not
// valid UTF-8. The value has been encoded before. Values that encode themselves are
// passed over: what they write is theirs.
func (e *Engine) invalidText(v reflect.Value) bool {
	return !e.walk(v, false, func(v reflect.Value, pointed bool) visit {
		p := typeAt{v.Type(), pointed}
		switch k := v.Kind(); {
		case p.encodesItself(), k == reflect.Slice && p.Elem().Kind() == reflect.Uint8:
			return skip
		case k == reflect.String && !utf8.ValidString(v.String()):
			return stop
		}
		return enter
	})
}
