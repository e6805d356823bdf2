package canonical

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

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

// place is where a value lies in a canonical text: start is its member's name, or
// the value itself where it has none; end is the index after it.
type place struct{ start, value, end int }

// find looks a valid pointer up in a canonical text.
func find(document []byte, pointer string) (p place, found bool) {
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
