package idem

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Select says which parts of a JSON input its fingerprint covers: either only
// some, or all without some. Parts are named by JSON pointer (RFC 6901), such as
// "/customer/id" or "/items/0"; "~1" stands for a slash in a name, "~0" for a
// tilde. The zero value covers everything.
//
// Changing a selection changes fingerprints, so a retry across that deployment
// may be refused as a reused key.
//
// A Select may be used by any number of goroutines, as long as nobody changes it.
type Select struct {
	// Only lists the parts that count. Each must be in every input, null included:
	// where one is missing the input is refused with a [*NotCanonicalError], since
	// two inputs without it would look the same. The list's order does not matter.
	Only []string
	// Without lists the parts that do not count, such as a time of sending. They
	// may be missing. A part of an array goes with its place: what follows it moves
	// up.
	Without []string
}

// Check reports what is wrong with a selection, as a [*ConfigError]: both lists
// filled, a text that is no JSON pointer, a pointer inside another one, or nothing
// left. A nil Select is fine.
func (s *Select) Check() error {
	if s == nil {
		return nil
	}
	bad := func(format string, args ...any) error {
		return &ConfigError{What: "fingerprint selection", Problem: fmt.Sprintf(format, args...)}
	}
	if len(s.Only) > 0 && len(s.Without) > 0 {
		return bad("Only and Without are both set: use one of them")
	}
	pointers := s.Only
	if len(pointers) == 0 {
		pointers = s.Without
	}
	for i, pointer := range pointers {
		switch {
		case pointer == "" && len(s.Without) > 0:
			return bad("Without names the whole input, which leaves nothing to tell two inputs apart: name fields")
		case pointer != "" && pointer[0] != '/':
			return bad("%q is no JSON pointer: start it with a slash, as in %q", pointer, "/"+pointer)
		case !utf8.ValidString(pointer):
			return bad("%q is not valid UTF-8", pointer)
		case badEscape(pointer):
			return bad("%q has a tilde that is not ~0 or ~1: write ~0 for a tilde", pointer)
		}
		for j, other := range pointers {
			if i != j && (other == pointer || strings.HasPrefix(other, pointer) && other[len(pointer)] == '/') {
				return bad("%q lies inside %q: name it once", other, pointer)
			}
		}
	}
	return nil
}

func badEscape(pointer string) bool {
	for {
		_, rest, found := strings.Cut(pointer, "~")
		if !found {
			return false
		}
		if rest == "" || rest[0] != '0' && rest[0] != '1' {
			return true
		}
		pointer = rest
	}
}

func (s *Select) only() bool { return s != nil && len(s.Only) > 0 }

// leaveOut cuts what does not count out of a canonical text, in place. What
// remains is canonical again.
func (s *Select) leaveOut(document []byte) []byte {
	places := make([]place, 0, len(s.Without))
	for _, pointer := range s.Without {
		if p, found := findValue(document, pointer); found {
			places = append(places, p)
		}
	}
	// From the back, so that places further in front stay true.
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(b.start, a.start) })
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

func missingError(pointer string) error {
	return &NotCanonicalError{
		Reason: fmt.Sprintf("the field %.64q is missing and the fingerprint depends on it: send it", pointer),
		Offset: -1,
	}
}

// place is where a value lies in a canonical text: start is its member's name, or
// the value itself where it has none; end is the index after it.
type place struct{ start, value, end int }

// findValue looks a valid pointer up in a canonical text.
func findValue(document []byte, pointer string) (p place, found bool) {
	for pointer != "" {
		token, rest := pointer[1:], ""
		if i := strings.IndexByte(token, '/'); i >= 0 {
			token, rest = token[:i], token[i:]
		}
		switch document[p.value] {
		case '{':
			p, found = findMember(document, p.value, token)
		case '[':
			p, found = findElement(document, p.value, token)
		default:
			found = false
		}
		if !found {
			return place{}, false
		}
		pointer = rest
	}
	p.end = skipValue(document, p.value)
	return p, true
}

// findMember needs no unescaping: canonical texts have one spelling per name.
func findMember(document []byte, i int, token string) (place, bool) {
	if strings.IndexByte(token, '~') >= 0 {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	name, err := jsontext.AppendQuote(nil, token)
	if err != nil {
		return place{}, false
	}
	for i++; document[i] != '}'; {
		if document[i] == ',' {
			i++
		}
		colon := skipString(document, i)
		if bytes.Equal(document[i:colon], name) {
			return place{start: i, value: colon + 1}, true
		}
		i = skipValue(document, colon+1)
	}
	return place{}, false
}

func findElement(document []byte, i int, token string) (place, bool) {
	index, err := strconv.Atoi(token)
	if err != nil || strconv.Itoa(index) != token { // no sign, no leading zeros
		return place{}, false
	}
	for i++; document[i] != ']'; index-- {
		if document[i] == ',' {
			i++
		}
		if index == 0 {
			return place{start: i, value: i}, true
		}
		i = skipValue(document, i)
	}
	return place{}, false
}

// skipValue returns the index after the value that starts at i in a canonical text.
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
