package idem

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// longestPlain is the number of digits up to which ECMAScript writes integers
	// plainly; from 1e21 on it writes an exponent.
	longestPlain = 21
	// mostDigits is what the shortest decimal of a double has at most.
	mostDigits = 17
	// safeDigits always survive a double whose exponent is within safeExponent:
	// C's DBL_DIG, and a range well inside that of normal doubles.
	safeDigits, safeExponent = 15, 290
)

// numberForm says how a number of a JSON text is to be written.
type numberForm uint8

const (
	// formDone: the library writes the canonical form.
	formDone numberForm = iota
	// formLongInteger: a plain integer that takes the form with an exponent.
	formLongInteger
	// formRefused: a double would change it, and it is not a plain integer.
	formRefused
)

func formOf(token []byte) numberForm {
	if isPlainInteger(token) {
		if len(token) <= longestPlain {
			return formDone
		}
		if d := parseDecimal(token); d.point > longestPlain && d.fitsDouble() {
			return formLongInteger
		}
		return formDone
	}
	if d := parseDecimal(token); !d.fitsDouble() {
		return formRefused
	}
	return formDone
}

func isPlainInteger(token []byte) bool {
	for _, c := range token {
		if c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}

// shortenIntegers writes the long integers of a canonical text in their form with
// an exponent, in place. That form is never longer: at most 17 digits, the point
// and an exponent of four characters stand for 22 digits or more.
func shortenIntegers(text []byte) []byte {
	to := text[:0]
	for i := 0; i < len(text); {
		end := i + 1
		switch c := text[i]; {
		case c == '"':
			end = skipString(text, i)
		case c == '-' || '0' <= c && c <= '9':
			end = skipNumber(text, i)
			if formOf(text[i:end]) != formLongInteger {
				break
			}
			if f, err := strconv.ParseFloat(string(text[i:end]), 64); err == nil {
				to = jsontext.AppendFloat(to, f, 64)
				i = end
				continue
			}
		}
		to = append(to, text[i:end]...)
		i = end
	}
	return to
}

// decimal is the exact value of a number without its sign: 0.DIGITS × 10^point,
// where the digits neither start nor end with a zero. Zero has none.
type decimal struct {
	digits [mostDigits + 1]byte
	// n is the number of digits; mostDigits+1 stands for more than mostDigits.
	n     int
	point int64
}

// parseDecimal reads a number token. It needs no memory, however large the
// exponent or long the digits.
func parseDecimal(token []byte) (d decimal) {
	mantissa, exponent := token, []byte(nil)
	if i := bytes.IndexAny(token, "eE"); i >= 0 {
		mantissa, exponent = token[:i], token[i+1:]
	}
	fraction, zeros := false, 0 // zeros that count only if a digit follows
	for _, c := range mantissa {
		switch {
		case c == '.':
			fraction = true
			continue
		case c < '0' || c > '9':
			continue
		case c == '0' && d.n == 0:
			if fraction {
				d.point--
			}
			continue
		case c == '0':
			zeros++
		default:
			for ; zeros > 0; zeros-- {
				d.push('0')
			}
			d.push(c)
		}
		if !fraction {
			d.point++
		}
	}
	if d.n == 0 {
		return decimal{}
	}
	d.point += parseExponent(exponent)
	return d
}

func (d *decimal) push(c byte) {
	if d.n < len(d.digits) {
		d.digits[d.n] = c
		d.n++
	}
}

// parseExponent reads an exponent. It stops growing at a size that no number of
// leading zeros or digits in memory could bring back into a double's range.
func parseExponent(exponent []byte) int64 {
	const enough = 1 << 50
	value, negative := int64(0), false
	for _, c := range exponent {
		switch {
		case c == '-':
			negative = true
		case '0' <= c && c <= '9' && value < enough:
			value = value*10 + int64(c-'0')
		}
	}
	if negative {
		return -value
	}
	return value
}

// fitsDouble reports whether the shortest decimal of the nearest double is this
// very number.
func (d *decimal) fitsDouble() bool {
	switch {
	case d.n == 0:
		return true
	case d.n > mostDigits || d.point > 310 || d.point < -330:
		return false
	case d.n <= safeDigits && -safeExponent <= d.point && d.point <= safeExponent:
		return true
	}
	var buffer [32]byte
	text := append(buffer[:0], "0."...)
	text = append(text, d.digits[:d.n]...)
	text = append(text, 'e')
	text = strconv.AppendInt(text, d.point, 10)
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return false // out of range
	}
	return parseDecimal(strconv.AppendFloat(buffer[:0], f, 'e', -1, 64)) == *d
}
