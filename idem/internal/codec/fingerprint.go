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
	blind := s.opaque
	var raw []byte
	if blind == nil {
		var err error
		if raw, err = json.Marshal(in); err != nil {
			return "", &protocol.ConfigError{What: "input", Problem: fmt.Sprintf("%T cannot be encoded as JSON: %v", *in, err)}
		}
		if s.open {
			blind = opaqueIn(reflect.ValueOf(in).Elem())
		}
	}
	if blind != nil {
		return "", &protocol.ConfigError{What: "input", Problem: unseen(blind, "all inputs would look the same")}
	}
	// encoding/json writes every invalid byte as the same escape: inputs that differ
	// there must not become equal.
	if bytes.Contains(raw, []byte(`\ufffd`)) && invalidText(reflect.ValueOf(in)) {
		return "", &fingerprint.NotCanonicalError{Reason: "a string of the input is not valid UTF-8: send bytes as []byte", Offset: -1}
	}
	return fingerprint.JSON(raw, nil)
}

// opaqueIn returns the type of a value behind an interface that looks like every other
// one of its type, nil if there is none.
func opaqueIn(v reflect.Value) (blind reflect.Type) {
	behind := false
	walk(v, true, func(v reflect.Value, pointed bool) visit {
		if behind {
			if blind = shapeOf(v.Type(), false).opaque; blind != nil {
				return stop
			}
		}
		behind = v.Kind() == reflect.Interface
		if (typeAt{v.Type(), pointed}).encodesItself() || !shapeOf(v.Type(), pointed).open {
			return skip
		}
		return enter
	})
	return blind
}

// invalidText reports whether a string that encoding/json writes of the value is not
// valid UTF-8. The value has been encoded before. Values that encode themselves are
// passed over: what they write is theirs.
func invalidText(v reflect.Value) bool {
	return !walk(v, false, func(v reflect.Value, pointed bool) visit {
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
