package idemhttp

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The head is one line of JSON without white space, its members in this order and
// left out where they are empty, the names of headers sorted:
//
//	{"v":1,"status":200,"headers":{"A":"b"},"multi":{"C":["d","e"]},"base64":true}
//
// Names and values are in ISO 8859-1, a code point for each byte, as headers may
// have any bytes and JSON may not.

// headBegins is how each head begins.
const headBegins = `{"v":`

// appendHead writes the head of a response with the headers that keep lets through.
func (r *Response) appendHead(b []byte, keep func(name string) bool) []byte {
	b = append(b, headBegins...)
	b = strconv.AppendInt(b, codecVersion, 10)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	var some [8]string
	names := sortedNames(some[:0], r.Headers, keep)
	for i, name := range names {
		b = append(b, opening(i, `,"headers":{`)...)
		b = append(appendText(b, name), ':')
		b = appendText(b, r.Headers[name])
	}
	b = append(b, closing(len(names))...)
	names = sortedNames(names[:0], r.MultiHeaders, keep)
	for i, name := range names {
		b = append(b, opening(i, `,"multi":{`)...)
		b = append(appendText(b, name), ":["...)
		for j, value := range r.MultiHeaders[name] {
			b = append(b, opening(j, "")...)
			b = appendText(b, value)
		}
		b = append(b, ']')
	}
	b = append(b, closing(len(names))...)
	if r.Base64 {
		b = append(b, `,"base64":true`...)
	}
	return append(b, "}\n"...)
}

func sortedNames[V any](names []string, headers map[string]V, keep func(string) bool) []string {
	for name := range headers {
		if keep(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names) // as bytes, and so as their code points
	return names
}

// opening is what stands before the i-th of a list.
func opening(i int, first string) string {
	if i == 0 {
		return first
	}
	return ","
}

func closing(n int) string {
	if n == 0 {
		return ""
	}
	return "}"
}

func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, toLatin1(s)) // it is valid UTF-8
	return b
}

// headReader reads a head. It is lenient where writing the head again shows a
// difference: order, repeats, spelling of escapes and numbers.
type headReader struct {
	rest    string
	invalid bool
}

// version reads up to the version, after which others may look different.
func (h *headReader) version() int {
	h.must(headBegins)
	return h.number()
}

// response reads the rest.
func (h *headReader) response() *Response {
	r := new(Response)
	h.must(`,"status":`)
	r.Status = h.number()
	if h.eat(`,"headers":{`) {
		r.Headers = make(map[string]string, strings.Count(h.rest, `":"`)+3) // with the marks of a replay
		h.members(func(name string) { r.Headers[name] = h.text() })
	}
	if h.eat(`,"multi":{`) {
		r.MultiHeaders = map[string][]string{}
		h.members(func(name string) { r.MultiHeaders[name] = h.list() })
	}
	r.Base64 = h.eat(`,"base64":true`)
	h.must("}")
	h.invalid = h.invalid || h.rest != ""
	return r
}

func (h *headReader) members(each func(name string)) {
	for {
		name := h.text()
		h.must(":")
		each(name)
		if h.invalid || h.eat("}") {
			return
		}
		h.must(",")
	}
}

func (h *headReader) list() []string {
	values := []string{}
	h.must("[")
	if h.eat("]") {
		return values
	}
	for {
		values = append(values, h.text())
		if h.invalid || h.eat("]") {
			return values
		}
		h.must(",")
	}
}

func (h *headReader) eat(text string) bool {
	rest, ok := strings.CutPrefix(h.rest, text)
	h.rest = rest
	return ok
}

func (h *headReader) must(text string) {
	if !h.eat(text) {
		h.invalid = true
	}
}

func (h *headReader) number() int {
	end := 0
	for end < len(h.rest) && '0' <= h.rest[end] && h.rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(h.rest[:end])
	h.invalid = h.invalid || err != nil
	h.rest = h.rest[end:]
	return n
}

// text reads a string and turns it back into the bytes that it stands for.
func (h *headReader) text() string {
	h.must(`"`)
	end := 0
	escaped := false
	for end < len(h.rest) && h.rest[end] != '"' {
		if h.rest[end] == '\\' {
			escaped = true
			end++
		}
		end++
	}
	if h.invalid || end >= len(h.rest) {
		h.invalid = true
		return ""
	}
	s := h.rest[:end]
	if escaped {
		b, err := jsontext.AppendUnquote(nil, `"`+s+`"`)
		h.invalid = h.invalid || err != nil
		s = string(b)
	}
	h.rest = h.rest[end+1:]
	s, ok := fromLatin1(s)
	h.invalid = h.invalid || !ok
	return s
}
