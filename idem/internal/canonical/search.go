package canonical

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// search follows a valid pointer through a compact text, which it reads once at most.
type search struct {
	text    []byte
	pointer string
	// strict looks at all members, not only those on the way: a second one of the same name,
	// which canonical texts do not have, is an error, and other is the pointer to one
	// whose name differs in case alone.
	strict bool
	other  string
	// place is where the value lies, if it is found.
	place
	found bool
	err   error
	name  []byte
}

// place is where a value lies in a compact text: start is its member's name, or
// the value itself where it has none; end is the index after it.
type place struct{ start, value, end int }

// find looks a valid pointer up in a canonical text.
func find(document []byte, pointer string) (place, bool) {
	s := search{text: document, pointer: pointer}
	s.follow(place{}, pointer)
	return s.place, s.found
}

// follow follows the rest of the pointer into a value, and returns the index after that
// unless it has come to an end.
func (s *search) follow(p place, rest string) int {
	switch c := s.text[p.value]; {
	case rest == "":
		p.end = skipValue(s.text, p.value)
		s.place, s.found = p, true
		return p.end
	case c == '{':
		return s.object(p.value, rest)
	case c == '[':
		return s.array(p.value, rest)
	}
	return skipValue(s.text, p.value)
}

// ended says that nothing in the rest of the text matters.
func (s *search) ended() bool { return s.found && !s.strict || s.err != nil }

func (s *search) object(i int, pointer string) int {
	want, rest := firstToken(pointer)
	there := false
	for i++; s.text[i] != '}'; {
		if s.text[i] == ',' {
			i++
		}
		m := place{start: i, value: skipString(s.text, i) + 1}
		name := s.nameOf(m)
		if string(name) != want {
			if s.strict && strings.EqualFold(string(name), want) {
				way := s.pointer[:len(s.pointer)-len(pointer)]
				s.other = way + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(string(name))
			}
			i = skipValue(s.text, m.value)
			continue
		}
		if there {
			s.err = &Error{Reason: fmt.Sprintf("the member name %.64q occurs twice in one object: send each name once", want),
				Offset: -1}
			return i
		}
		there = true
		if i = s.follow(m, rest); s.ended() {
			return i
		}
	}
	return i + 1
}

// nameOf is a member's name, unescaped. It is valid until the next call.
func (s *search) nameOf(m place) []byte {
	quoted := s.text[m.start : m.value-1]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	s.name, _ = jsontext.AppendUnquote(s.name[:0], quoted) // the library wrote it
	return s.name
}

func (s *search) array(i int, pointer string) int {
	token, rest := firstToken(pointer)
	index, err := strconv.Atoi(token)
	if err != nil || strconv.Itoa(index) != token { // no sign, no leading zeros
		index = -1
	}
	for i++; s.text[i] != ']'; index-- {
		if s.text[i] == ',' {
			i++
		}
		if index != 0 {
			i = skipValue(s.text, i)
		} else if i = s.follow(place{start: i, value: i}, rest); s.ended() {
			return i
		}
	}
	return i + 1
}

// skipValue returns the index after the value that starts at i in a compact text.
func skipValue(document []byte, i int) int {
	depth := 0
	for i < len(document) {
		switch document[i] {
		case '"':
			i = skipString(document, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // the end of what holds a bare value
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// Find returns the value of a canonical text to which a valid JSON pointer leads.
func Find(document []byte, pointer string) (value []byte, found bool) {
	p, found := find(document, pointer)
	return document[p.value:p.end], found
}

// Cut takes the values to which valid JSON pointers lead out of a canonical text, in
// place. None may lie inside another one. What remains is canonical again: what follows
// an element of an array moves up.
func Cut(document []byte, pointers []string) []byte {
	places := make([]place, 0, len(pointers))
	for _, pointer := range pointers {
		if p, found := find(document, pointer); found {
			places = append(places, p)
			// From the back, so that places further in front stay true.
			for i := len(places) - 1; i > 0 && places[i].start > places[i-1].start; i-- {
				places[i], places[i-1] = places[i-1], places[i]
			}
		}
	}
	for _, p := range places {
		switch {
		case document[p.start-1] == ',':
			p.start--
		case document[p.end] == ',':
			p.end++
		}
		document = slices.Delete(document, p.start, p.end)
	}
	return document
}
