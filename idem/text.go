package idem

import (
	"reflect"
	"unicode/utf8"
)

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
