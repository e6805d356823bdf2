package idem

import (
	"reflect"
	"unicode/utf8"
)

// invalidText reports whether a string in the value, which has been encoded as
// JSON before and so has no cycles, is not valid UTF-8. Values that encode
// themselves are passed over: what they write is theirs.
func invalidText(v reflect.Value) bool {
	if !v.IsValid() || v.Type().Implements(jsonMarshaler) || v.Type().Implements(textMarshaler) {
		return false
	}
	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return invalidText(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && invalidText(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		for i := range v.Len() {
			if invalidText(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if invalidText(it.Key()) || invalidText(it.Value()) {
				return true
			}
		}
	}
	return false
}
