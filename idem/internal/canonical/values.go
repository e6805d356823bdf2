package canonical

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ValueError says why a pointer leads to no value that can name something.
type ValueError struct {
	// Reason says what is wrong, where, and what to do.
	Reason string
	// Absent is set if nothing is there, or null.
	Absent bool
}

func (e *ValueError) Error() string { return e.Reason }

// Values returns the values of a JSON text, canonical or not, to which valid pointers
// lead. Errors call the text by noun, such as "body". A value is a string that is not empty,
// or a plain integer, without fraction and exponent, whose digits are returned as they are
// written. Anything else is a [*ValueError]. So is a member on the way if another one differs
// from it only in case: Go's encoding/json takes either for the other.
//
// The text is refused with an [*Error] where [Append] would refuse it, but numbers may
// have any size, and duplicate names count on the way alone.
//
// The text is read once, whatever the number of pointers, and what was read is searched
// for each of them.
func Values(raw []byte, noun string, pointers ...string) ([]string, error) {
	text, err := compact(make([]byte, 0, len(raw)), raw)
	if err != nil {
		return nil, err
	}
	values := make([]string, len(pointers))
	for i, pointer := range pointers {
		if values[i], err = valueAt(text, noun, pointer); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// valueAt is Values for one pointer and a compact text.
func valueAt(text []byte, noun, pointer string) (string, error) {
	wrong := func(absent bool, format string, args ...any) (string, error) {
		return "", &ValueError{fmt.Sprintf(format, args...), absent}
	}
	s := search{text: text, pointer: pointer, strict: true}
	s.follow(place{}, pointer)
	switch {
	case s.err != nil:
		return "", s.err
	case s.found && s.other != "":
		return wrong(false, "the %s has %q next to %q, and a handler may take either for the other: send one of them",
			noun, s.other, pointer)
	case s.other != "":
		return wrong(false, "there is no value at %q of the %s, which has %q: pointers are case-sensitive",
			pointer, noun, s.other)
	case !s.found:
		return wrong(true, "there is no value at %q of the %s", pointer, noun)
	}
	token := text[s.value:s.end]
	switch c := token[0]; {
	case string(token) == `""`:
		return wrong(false, "the string at %q of the %s is empty", pointer, noun)
	case c == '"':
		value, err := jsontext.AppendUnquote(nil, token)
		return string(value), err
	case c == '-' || '0' <= c && c <= '9':
		if _, plain := skipNumber(token, 0); plain {
			return string(token), nil
		}
		return wrong(false, "the number at %q of the %s has a fraction or an exponent: send an integer or a string", pointer,
			noun)
	case c == 'n':
		return wrong(true, "the value at %q of the %s is null", pointer, noun)
	}
	return wrong(false, "the value at %q of the %s is neither a string nor an integer", pointer, noun)
}

// CheckPointer says what is wrong with a text that is no JSON pointer (RFC 6901). The
// empty pointer leads to the whole text.
func CheckPointer(pointer string) error {
	switch {
	case pointer != "" && pointer[0] != '/':
		return fmt.Errorf("%q is no JSON pointer: start it with a slash, as in %q", pointer, "/"+pointer)
	case !utf8.ValidString(pointer):
		return fmt.Errorf("%q is not valid UTF-8", pointer)
	}
	for rest := pointer; ; {
		_, after, found := strings.Cut(rest, "~")
		if !found {
			return nil
		}
		if after == "" || after[0] != '0' && after[0] != '1' {
			return fmt.Errorf("%q has a tilde that is not ~0 or ~1: write ~0 for a tilde", pointer)
		}
		rest = after
	}
}

// firstToken splits a valid pointer that is not empty into its first reference token,
// unescaped, and the pointer from there on.
func firstToken(pointer string) (token, rest string) {
	token = pointer[1:]
	if i := strings.IndexByte(token, '/'); i >= 0 {
		token, rest = token[:i], token[i:]
	}
	if strings.IndexByte(token, '~') >= 0 {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return token, rest
}
