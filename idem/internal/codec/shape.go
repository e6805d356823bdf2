package codec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
)

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()
	reader        = reflect.TypeFor[io.Reader]()
)

// shape is what is known of a type at any depth.
type shape struct {
	// never is a type within that cannot be encoded, opaque one whose values, or what they
	// read, all look the same.
	never, opaque reflect.Type
	// open is set if an interface is within: only its value tells what it holds.
	open bool
	// members of the type itself, if it is a struct.
	members []member
}

// typeAt is a type where encoding/json may call the methods of a pointer to it, or
// only its own: behind a pointer, but not in a map or an interface.
type typeAt struct {
	reflect.Type
	pointed bool
}

// encodesItself reports whether the type has a method for it, whose word is taken.
func (p typeAt) encodesItself() bool {
	if p.Implements(jsonMarshaler) || p.Implements(textMarshaler) {
		return true
	}
	ptr := reflect.PointerTo(p.Type)
	return p.pointed && (ptr.Implements(jsonMarshaler) || ptr.Implements(textMarshaler))
}

// elem is the place of what the type is made of.
func (p typeAt) elem() typeAt {
	switch p.Kind() {
	case reflect.Map:
		return typeAt{p.Elem(), false}
	case reflect.Array:
		return typeAt{p.Elem(), p.pointed}
	}
	return typeAt{p.Elem(), true}
}

func newShape(t reflect.Type, pointed bool) *shape {
	s := new(shape)
	p := typeAt{t, pointed}
	s.add(p, map[typeAt]bool{})
	if t.Kind() == reflect.Struct {
		s.members = members(p)
	}
	return s
}

func (s *shape) add(p typeAt, seen map[typeAt]bool) {
	if seen[p] || p.encodesItself() {
		return
	}
	seen[p] = true
	switch p.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		s.never = cmp.Or(s.never, p.Type)
	case reflect.Interface:
		if s.open = true; reads(p.Type) {
			s.opaque = cmp.Or(s.opaque, p.Type)
		}
	case reflect.Map:
		if k := p.Key(); !isName(k.Kind()) && !k.Implements(textMarshaler) {
			s.never = cmp.Or(s.never, p.Type)
		}
		s.add(p.elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		s.add(p.elem(), seen)
	case reflect.Struct:
		fields := members(p)
		if len(fields) == 0 && p.Size() > 0 || reads(p.Type) {
			s.opaque = cmp.Or(s.opaque, p.Type)
		}
		for _, f := range fields {
			s.add(f.typeAt, seen)
		}
	}
}

// reads reports whether a value of the type is read: its fields, if JSON sees any, do not
// tell what it has.
func reads(t reflect.Type) bool {
	return t.Implements(reader) || reflect.PointerTo(t).Implements(reader)
}

// unseen says what is lost of an opaque type, what follows from that, and what to do.
func unseen(t reflect.Type, so string) string {
	if reads(t) {
		return fmt.Sprintf("of what %v reads JSON sees nothing, so that %s: read it first and use the content, such as a string, or give the type a MarshalJSON method", t, so)
	}
	return fmt.Sprintf("of %v JSON sees nothing, so that %s: export the fields, or give it a MarshalJSON method (in a map a pointer's does not count)", t, so)
}

// isName reports whether encoding/json makes member names of the kind without a
// TextMarshaler.
func isName(k reflect.Kind) bool {
	return k == reflect.String || k >= reflect.Int && k <= reflect.Uintptr
}

// member is a field that encoding/json writes.
type member struct {
	typeAt
	index  []int
	name   string
	tagged bool
}

// members lists what encoding/json writes of a struct, by its rules: fields of
// embedded structs are the outer one's, and of several with one name the least deep
// counts, then the one with a tag, else none.
func members(p typeAt) []member {
	named := map[string][]member{}
	var collect func(p typeAt, index []int, within []reflect.Type)
	collect = func(p typeAt, index []int, within []reflect.Type) {
		for i := range p.NumField() {
			f := p.Type.Field(i)
			tag, name := f.Tag.Get("json"), ""
			if tag == "-" {
				continue
			}
			name, _, _ = strings.Cut(tag, ",")
			m := member{typeAt{f.Type, p.pointed}, append(slices.Clone(index), i), cmp.Or(name, f.Name), name != ""}
			inner := m.typeAt
			if inner.Kind() == reflect.Pointer {
				inner = inner.elem()
			}
			switch {
			case f.Anonymous && inner.Kind() == reflect.Struct && name == "":
				if !slices.Contains(within, inner.Type) {
					collect(inner, m.index, append(slices.Clone(within), inner.Type))
				}
			case f.IsExported():
				named[m.name] = append(named[m.name], m)
			}
		}
	}
	collect(p, nil, []reflect.Type{p.Type})
	var all []member
	for _, ms := range named {
		best, alike := ms[0], 1
		for _, m := range ms[1:] {
			switch cmp.Compare(m.rank(), best.rank()) {
			case -1:
				best, alike = m, 1
			case 0:
				alike++
			}
		}
		if alike == 1 {
			all = append(all, best)
		}
	}
	return all
}

// rank orders fields of one name.
func (m member) rank() int {
	if m.tagged {
		return 2 * len(m.index)
	}
	return 2*len(m.index) + 1
}

// shapes are what is known already: reflect.Type or typeAt → *shape.
var shapes sync.Map

func shapeOf(t reflect.Type, pointed bool) *shape {
	var key any = t
	if !pointed {
		key = typeAt{t, false}
	}
	if s, ok := shapes.Load(key); ok {
		return s.(*shape)
	}
	s := newShape(t, pointed)
	shapes.Store(key, s)
	return s
}

// walk calls at for the values that encoding/json writes of v, outermost first, until
// it returns false; into those for which it returns skip it does not go. The value has
// been encoded before, and so has no cycles.
func walk(v reflect.Value, pointed bool, at func(reflect.Value, bool) visit) bool {
	if !v.IsValid() {
		return true
	}
	switch at(v, pointed) {
	case skip:
		return true
	case stop:
		return false
	}
	p := typeAt{v.Type(), pointed}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return walk(v.Elem(), v.Kind() == reflect.Pointer, at)
	case reflect.Struct:
		for _, f := range shapeOf(v.Type(), pointed).members {
			// A nil embedded pointer has no fields.
			if fv, err := v.FieldByIndexErr(f.index); err == nil && !walk(fv, f.pointed, at) {
				return false
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !walk(v.Index(i), p.elem().pointed, at) {
				return false
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !walk(it.Key(), false, at) || !walk(it.Value(), false, at) {
				return false
			}
		}
	}
	return true
}

// visit says how a walk continues.
type visit uint8

const (
	enter visit = iota
	skip
	stop
)
