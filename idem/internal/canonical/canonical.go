package canonical

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Error says why a text has no canonical form, or not the value that was asked for.
type Error struct {
	// Reason says what is wrong and what to do. It quotes one character of
	// the input at most.
	Reason string
	// Offset is the byte of the input at or after which the mistake lies, counted
	// from zero; -1 where it has no place, such as for a field that is missing.
	Offset int64
}

func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.Reason
	}
	return fmt.Sprintf("at byte %d: %s", e.Offset, e.Reason)
}

// MaxDepth is how deep the arrays and objects of an input may nest. It is far
// beyond what clients send. The library moves a text once for each level.
const MaxDepth = 200

// Append appends the canonical form of one JSON text to dst. Two numbers have the same bytes
// exactly if they stand for the same decimal: a plain integer for itself, any other for the shortest
// decimal of its double. 1, 1.0 and 10e-1 are one number, and so are 9007199254740993.0 and
// 9007199254740992, but not 9007199254740993. A plain integer keeps its digits, unless the form of
// RFC 8785 says the same number: 1 followed by 21 zeros is 1e+21.
//
// A text that is refused gives an [*Error], and dst is returned as it was.
func Append(dst, raw []byte) ([]byte, error) {
	if err := checkDepth(raw); err != nil {
		return dst, err
	}
	text, wrong := checkNumbers(raw)
	if wrong != nil {
		if _, err := compact(nil, raw); err != nil {
			return dst, err // that it is no JSON comes before what is wrong with it
		}
		return dst, wrong
	}
	start := len(dst)
	dst, err := jsontext.AppendFormat(dst, text, canonicalForm...)
	if err != nil && len(text) != len(raw) {
		_, err = jsontext.AppendFormat(nil, raw) // for its offset
	}
	if err != nil {
		return dst[:start], syntaxError(raw, err)
	}
	return dst, nil
}

// canonicalForm is that of RFC 8785 but for plain integers.
var canonicalForm = []jsontext.Options{
	jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawFloats(true), jsontext.CanonicalizeRawInts(false),
}

// compact appends a JSON text without white space and with one spelling for each
// string. Numbers, the order of members and duplicate names are left as they are.
func compact(dst, raw []byte) ([]byte, error) {
	if err := checkDepth(raw); err != nil {
		return dst, err
	}
	start := len(dst)
	dst, err := jsontext.AppendFormat(dst, raw, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return dst[:start], syntaxError(raw, err)
	}
	return dst, nil
}

// checkDepth is exact if the text is valid JSON and harmless otherwise.
func checkDepth(raw []byte) error {
	if bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) <= MaxDepth {
		return nil // which is counted faster than read
	}
	depth := 0
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
			continue
		case '[', '{':
			if depth++; depth > MaxDepth {
				return &Error{
					Reason: fmt.Sprintf("arrays and objects are nested more than %d deep: send a flatter structure", MaxDepth),
					Offset: int64(i),
				}
			}
		case ']', '}':
			depth--
		}
		i++
	}
	return nil
}

// skipString returns the index after the string that starts at i, or the end of
// a text that breaks off inside it.
func skipString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// syntaxError puts the library's finding into words that say what to do. The
// frequent mistakes have their own; they are found in the input, as the library
// does not promise its texts.
func syntaxError(raw []byte, err error) error {
	refuse := func(offset int64, format string, args ...any) error {
		return &Error{Reason: fmt.Sprintf(format, args...), Offset: offset}
	}
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return refuse(-1, "%v", err)
	}
	at := syntax.ByteOffset
	switch {
	case len(bytes.TrimLeft(raw, " \t\r\n")) == 0:
		return refuse(0, "the input is empty: send one JSON value")
	case bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")):
		return refuse(0, "the input starts with a byte order mark: send UTF-8 without it")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return refuse(at, "the member name occurs twice in one object: send each name once")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(at, "the JSON text breaks off: send all of it")
	case !utf8.Valid(raw):
		return refuse(firstInvalid(raw), "the input is not valid UTF-8: send UTF-8")
	case isSurrogate(raw, at):
		return refuse(at, "the escape is half a surrogate pair, not a character: send whole characters")
	}
	return refuse(at, "the input is not valid JSON (%v): send one JSON value", syntax.Err)
}

func firstInvalid(raw []byte) int64 {
	for i, r := range string(raw) {
		if r == utf8.RuneError && !bytes.HasPrefix(raw[i:], []byte("\ufffd")) {
			return int64(i)
		}
	}
	return int64(len(raw))
}

// isSurrogate reports whether an escape between \ud800 and \udfff starts at i.
func isSurrogate(raw []byte, i int64) bool {
	if i < 0 || i+6 > int64(len(raw)) {
		return false
	}
	escape := bytes.ToLower(raw[i : i+6])
	if !bytes.HasPrefix(escape, []byte(`\ud`)) || escape[3] < '8' {
		return false
	}
	return !bytes.ContainsFunc(escape[3:], func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f')
	})
}
