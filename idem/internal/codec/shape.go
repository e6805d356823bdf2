package codec

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
)

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()
	reader        = reflect.TypeFor[io.Reader]()
)

// shape is what is known of a type, at any depth.
type shape struct {
	// bad is a type within of whose values JSON has nothing, nil if there is none.
	bad reflect.Type
	// open is set if an interface is within: only its value tells what it holds.
	open bool
}

// shapes are what is known already, reflect.Type → shape, by whether encoding/json has the
// address of the value and so calls the methods of a pointer to it: not in a map or an
// interface.
var shapes = map[bool]*sync.Map{true: new(sync.Map), false: new(sync.Map)}

func shapeOf(t reflect.Type, addressed bool) shape {
	if s, ok := shapes[addressed].Load(t); ok {
		return s.(shape)
	}
	var s shape
	s.add(t, addressed, map[typeAt]bool{})
	shapes[addressed].Store(t, s)
	return s
}

type typeAt struct {
	reflect.Type
	addressed bool
}

func (s *shape) add(t reflect.Type, addressed bool, seen map[typeAt]bool) {
	at := typeAt{t, addressed}
	if s.bad != nil || seen[at] || encodesItself(t, addressed) {
		return
	}
	seen[at] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func:
		s.bad = t
	case reflect.Interface:
		if s.open = true; reads(t) {
			s.bad = t
		}
	case reflect.Map:
		s.add(t.Elem(), false, seen)
	case reflect.Pointer, reflect.Slice:
		s.add(t.Elem(), true, seen)
	case reflect.Array:
		s.add(t.Elem(), addressed, seen)
	case reflect.Struct:
		all := fields(t)
		if len(all) == 0 && t.Size() > 0 || reads(t) {
			s.bad = t
		}
		for _, f := range all {
			s.add(f.Type, addressed, seen)
		}
	}
}

// encodesItself reports whether the type has a method for it, whose word is taken.
func encodesItself(t reflect.Type, addressed bool) bool {
	if t.Implements(jsonMarshaler) || t.Implements(textMarshaler) {
		return true
	}
	ptr := reflect.PointerTo(t)
	return addressed && (ptr.Implements(jsonMarshaler) || ptr.Implements(textMarshaler))
}

// reads reports whether a value of the type is read: its fields, if JSON sees any, do not
// tell what it has.
func reads(t reflect.Type) bool {
	return t.Implements(reader) || reflect.PointerTo(t).Implements(reader)
}

// fields lists those that encoding/json writes of a struct, and those of embedded structs.
func fields(t reflect.Type) (all []reflect.StructField) {
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		embedded := f.Anonymous && name == "" && (f.Type.Kind() == reflect.Struct ||
			f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct)
		if f.IsExported() && !embedded && tag != "-" {
			all = append(all, f)
		}
	}
	return all
}

// problem says what is lost of a bad type, what follows from that, and what to do.
func problem(t reflect.Type, so string) string {
	switch {
	case t.Kind() == reflect.Chan || t.Kind() == reflect.Func:
		return fmt.Sprintf("%v cannot be encoded as JSON: use data only", t)
	case reads(t):
		return fmt.Sprintf("of what %v reads JSON sees nothing, so that %s: "+
			"read it first and use the content, such as a string, or give the type a MarshalJSON method", t, so)
	}
	return fmt.Sprintf("of %v JSON sees nothing, so that %s: "+
		"export the fields, or give it a MarshalJSON method (in a map a pointer's does not count)", t, so)
}

// holds reports whether is holds for a value that encoding/json writes of v, which has been
// encoded before and so has no cycles. What encodes itself is passed over.
func holds(v reflect.Value, is func(reflect.Value) bool) bool {
	if !v.IsValid() || encodesItself(v.Type(), v.CanAddr()) {
		return false
	}
	if is(v) {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return holds(v.Elem(), is)
	case reflect.Struct:
		for _, f := range fields(v.Type()) {
			// A nil embedded pointer has no fields.
			if fv, err := v.FieldByIndexErr(f.Index); err == nil && holds(fv, is) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() <= reflect.Complex128 {
			return false // bytes, numbers and truth values hold nothing
		}
		for i := range v.Len() {
			if holds(v.Index(i), is) {
				return true
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if holds(it.Key(), is) || holds(it.Value(), is) {
				return true
			}
		}
	}
	return false
}
