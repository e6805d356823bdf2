package idem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNotCanonical: the input is not JSON, or is JSON that two readers could
// understand differently, so no fingerprint can stand for it. It is the caller's
// mistake; read a [*NotCanonicalError] for what to change.
var ErrNotCanonical = errors.New("idem: the input has no canonical form")

// NotCanonicalError says why an input has no canonical form. It matches
// [ErrNotCanonical].
type NotCanonicalError struct {
	// Reason says what is wrong and what to do. It quotes at most a short piece of
	// the input.
	Reason string
	// Offset is the byte of the input at or after which the mistake lies, counted
	// from zero; -1 where it has no place, such as for a field that is missing.
	Offset int64
}

func (e *NotCanonicalError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%v: %s", ErrNotCanonical, e.Reason)
	}
	return fmt.Sprintf("%v: at byte %d: %s", ErrNotCanonical, e.Offset, e.Reason)
}

// Is makes the error match [ErrNotCanonical].
func (e *NotCanonicalError) Is(target error) bool { return target == ErrNotCanonical }

// MaxDepth is how deep the arrays and objects of an input may nest. It is far
// beyond what people send, and keeps the work on a hostile input near that on any
// other of its size.
const MaxDepth = 200

// appendCanonical appends the canonical form of one JSON text to dst. Two texts
// get the same bytes exactly if they mean the same value:
//
//   - Member order and string escaping are those of RFC 8785 (by UTF-16 units,
//     shortest escapes); white space goes.
//   - A number that a double carries unchanged takes the form of RFC 8785
//     (ECMAScript's), however it was written: 1, 1.0 and 10e-1 are 1; 1e21 and
//     its 22 digits are 1e+21; -0 is 0. Unchanged means that the shortest decimal
//     for the nearest double is exactly the number that was written.
//   - A plain integer (no fraction, no exponent) that a double would change keeps
//     its digits, at any size. RFC 8785 would round it, so that two order numbers
//     beyond 2^53 could be taken for one.
//   - Any other number that a double would change, or cannot reach, is refused.
//
// Which of these holds depends on the value alone, hence the equivalence.
//
// Refused too: duplicate member names (compared unescaped), invalid UTF-8, escapes
// that are half a surrogate pair, nesting beyond MaxDepth, a byte order mark, more
// or less than one value. On error dst comes back as it was.
func appendCanonical(dst, raw []byte) ([]byte, error) {
	found := prescan(raw)
	if found.depth != nil {
		return dst, found.depth
	}
	start := len(dst)
	dst, err := jsontext.AppendFormat(dst, raw,
		jsontext.CanonicalizeRawFloats(true),
		jsontext.ReorderRawObjects(true))
	if err != nil {
		return dst[:start], syntaxError(raw, err)
	}
	// Only now: before, a text that is no JSON at all could be blamed for a number.
	if found.number != nil {
		return dst[:start], found.number
	}
	if found.longInteger {
		dst = dst[:start+len(shortenIntegers(dst[start:]))]
	}
	return dst, nil
}

// findings is what one look at the raw text tells. It is exact if the text is
// valid JSON and harmless otherwise.
type findings struct {
	depth, number *NotCanonicalError
	// longInteger: some plain integer takes the form with an exponent, which the
	// library, told to leave integers alone, does not write.
	longInteger bool
}

func prescan(raw []byte) (found findings) {
	depth := 0
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			i = skipString(raw, i)
		case c == '-' || '0' <= c && c <= '9':
			end := skipNumber(raw, i)
			form := formOf(raw[i:end])
			if form == formRefused && found.number == nil {
				found.number = &NotCanonicalError{
					Reason: fmt.Sprintf("the number %.40s would be changed by a double-precision reader: "+
						"send it with fewer digits, or as a string", raw[i:end]),
					Offset: int64(i),
				}
			}
			found.longInteger = found.longInteger || form == formLongInteger
			i = end
		case c == '[' || c == '{':
			if depth++; depth > MaxDepth {
				found.depth = &NotCanonicalError{
					Reason: fmt.Sprintf("arrays and objects are nested more than %d deep: send a flatter structure", MaxDepth),
					Offset: int64(i),
				}
				return found
			}
			i++
		case c == ']' || c == '}':
			depth--
			i++
		default:
			i++
		}
	}
	return found
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

// skipNumber returns the index after the number that starts at i.
func skipNumber(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case '0' <= c && c <= '9', c == '.', c == 'e', c == 'E', c == '+', c == '-':
		default:
			return i
		}
	}
	return i
}

// syntaxError puts the library's finding into words that say what to do. The
// frequent mistakes have their own; they are told from the input, as the library
// does not promise its texts.
func syntaxError(raw []byte, err error) error {
	refuse := func(offset int64, format string, args ...any) error {
		return &NotCanonicalError{Reason: fmt.Sprintf(format, args...), Offset: offset}
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return refuse(-1, "%v", err)
	}
	at := syntax.ByteOffset
	switch {
	case len(bytes.TrimLeft(raw, " \t\r\n")) == 0:
		return refuse(0, "the input is empty: send one JSON value")
	case bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")):
		return refuse(0, "the input starts with a byte order mark: send UTF-8 without it")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return refuse(at, "the member name %.64q occurs twice in one object: send each name once", syntax.JSONPointer.LastToken())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(at, "the JSON text breaks off: send all of it")
	case !utf8.Valid(raw):
		return refuse(firstInvalid(raw), "the input is not valid UTF-8: send UTF-8")
	case isSurrogate(raw, at):
		return refuse(at, "the escape %s is half a surrogate pair, not a character: send whole characters", raw[at:at+6])
	}
	return refuse(at, "the input is not valid JSON (%v): send one JSON value, or declare that the input is not JSON", syntax.Err)
}

func firstInvalid(raw []byte) int64 {
	offset := 0
	for offset < len(raw) {
		r, size := utf8.DecodeRune(raw[offset:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		offset += size
	}
	return int64(offset)
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
