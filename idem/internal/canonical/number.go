package canonical

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

const (
	// longestPlain is the number of digits up to which ECMAScript writes integers
	// plainly; from 1e21 on it writes an exponent.
	longestPlain = 21
	// mostDigits is the number of significant digits that tell any two doubles apart.
	mostDigits = 17
	// allDigits is the largest number of significant digits of a double's exact value.
	allDigits = 767
	// mostTiny is how many numbers below smallest a text may hold: the standard library
	// takes a thousand times as long over one as over others.
	mostTiny = 100
)

// Decimal exponents of 0.DIGITS × 10^point.
const (
	// smallest is that of 2.2250738585072014e-308, below which doubles lose digits.
	smallest = -307
	// largest is that of 1.7976931348623157e+308.
	largest = 309
)

// numbers looks at the numbers of a text before the library does, which takes any: it
// turns 1e400 into the largest double, and drops digits.
type numbers struct {
	tiny int
	// short holds where those plain integers end that RFC 8785 writes with an exponent
	// and without loss.
	short []int
}

// checkNumbers returns the text with 1000000000000000000000 written as the
// equal 1000000000000000000000e0, from which the library makes 1e+21. The error is for a
// text that is valid JSON.
func checkNumbers(raw []byte) (text []byte, err error) {
	var n numbers
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			i = skipString(raw, i)
		case c == '-' || '0' <= c && c <= '9':
			end, plain := skipNumber(raw, i)
			if reason := n.check(raw[i:end], plain, end); reason != "" {
				return nil, &Error{Reason: reason, Offset: int64(i)}
			}
			i = end
		default:
			i++
		}
	}
	return n.shorten(raw), nil
}

// skipNumber returns the index after the number that starts at i, and whether it is a
// plain integer.
func skipNumber(text []byte, i int) (end int, plain bool) {
	plain = true
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case '0' <= c && c <= '9':
		case c == '.', c == 'e', c == 'E', c == '+', c == '-':
			plain = false
		default:
			return i, plain
		}
	}
	return i, plain
}

// check returns why a number is refused, and nothing for all others. Plain short ones
// need no look at their digits.
func (n *numbers) check(token []byte, plain bool, end int) (reason string) {
	if plain && len(token) <= longestPlain || len(token) <= mostDigits && !bytes.ContainsAny(token, "eE") {
		return ""
	}
	var room [64]byte
	digits, point := decimal(room[:0], token)
	switch {
	case len(digits) == 0: // zero
	case plain:
		if len(digits) <= mostDigits && shortest(digits, token) {
			n.short = append(n.short, end)
		}
	case point > largest || point == largest && !inRange(token):
		return "a number is out of the range of double-precision numbers: send one up to 1.7976931348623157e308, or a string"
	case len(digits) > mostDigits && !exact(digits, point, token):
		return fmt.Sprintf("a number has more than %d significant digits, which no double-precision number holds: "+
			"send fewer digits, or a string", mostDigits)
	case point <= smallest:
		if n.tiny++; n.tiny > mostTiny {
			return fmt.Sprintf("more than %d numbers are closer to zero than 1e-307: send 0 or strings", mostTiny)
		}
	}
	return ""
}

// shorten gives plain integers an exponent that RFC 8785 writes with one.
func (n *numbers) shorten(raw []byte) []byte {
	if len(n.short) == 0 {
		return raw
	}
	text, done := make([]byte, 0, len(raw)+2*len(n.short)), 0
	for _, end := range n.short {
		text, done = append(append(text, raw[done:end]...), "e0"...), end
	}
	return append(text, raw[done:]...)
}

// decimal reads a number without its sign as 0.DIGITS × 10^point, where the digits,
// appended to the buffer, neither start nor end with a zero. Zero has none.
func decimal(buffer, token []byte) (digits []byte, point int) {
	mantissa, exponent := bytes.TrimPrefix(token, []byte("-")), 0
	if i := bytes.IndexAny(mantissa, "eE"); i >= 0 {
		const enough = 1 << 50 // which no number of digits in memory brings back into range
		exponent, _ = strconv.Atoi(string(mantissa[i+1:]))
		exponent, mantissa = min(max(exponent, -enough), enough), mantissa[:i]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	all := append(append(buffer, whole...), fraction...)
	digits = bytes.TrimLeft(all, "0")
	return bytes.TrimRight(digits, "0"), len(whole) - (len(all) - len(digits)) + exponent
}

// shortest reports whether the digits are the shortest that tell the double next to the
// number from others.
func shortest(digits, token []byte) bool {
	f, err := strconv.ParseFloat(string(token), 64)
	return err == nil && isWritten(digits, f, -1)
}

// exact reports whether a double is the number itself.
func exact(digits []byte, point int, token []byte) bool {
	if len(digits) > allDigits {
		return false
	}
	f, err := strconv.ParseFloat(string(token), 64)
	_, exp := math.Frexp(f)
	precision := max(point, 0) + max(53-exp, 0) // as a double has 53 bits
	return err == nil && isWritten(digits, f, min(precision, allDigits-1))
}

// isWritten reports whether a double has these digits when it is written with a precision.
func isWritten(digits []byte, f float64, precision int) bool {
	var written, again [allDigits + 10]byte
	same, _ := decimal(again[:0], strconv.AppendFloat(written[:0], f, 'e', precision, 64))
	return bytes.Equal(digits, same)
}

func inRange(token []byte) bool {
	_, err := strconv.ParseFloat(string(token), 64)
	return err == nil
}
