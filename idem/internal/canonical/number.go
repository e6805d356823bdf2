package canonical

import (
	"bytes"
	"math"
	"math/big"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// longestPlain is the number of digits up to which ECMAScript writes integers
	// plainly; from 1e21 on it writes an exponent.
	longestPlain = 21
	// safeDigits are exact in a double's 53 bits, and so is their product or quotient
	// with a power of ten up to that of tens once rounded.
	safeDigits = 15
	// mostDigits is more than tell a number from all that lie half way between two
	// doubles, which have 767 at most.
	mostDigits = 800
)

// tens are the powers of ten that are exact doubles.
var tens = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// number brings the number that begins at i into its canonical form and returns the
// index after it.
func (c *canonicalizer) number(i int) int {
	end := skipNumber(c.text, i)
	token := c.text[i:end]
	var buffer [32]byte
	var form []byte
	if isPlainInteger(token) {
		if form = c.shortInteger(buffer[:0], token); form == nil {
			return end
		}
	} else {
		f, ok := c.double(token)
		if !ok {
			c.wrong = numberError(c.text[:i])
			return end
		}
		form = appendDouble(buffer[:0], f)
	}
	if !bytes.Equal(form, token) {
		c.out = slices.Grow(c.out, len(c.text)-c.done)
		c.out = append(append(c.out, c.text[c.done:i]...), form...)
		c.done = end
	}
	return end
}

// numberError refuses the number that follows the text before, which has as many
// numbers in it as stand before it in the text that was sent.
func numberError(before []byte) func(raw []byte) error {
	return func(raw []byte) error {
		start := nthNumber(raw, numbersIn(before))
		return &Error{
			Reason: "a number is out of the range of double-precision numbers: send one up to 1.7976931348623157e308, or a string",
			Offset: int64(start),
		}
	}
}

func numbersIn(text []byte) (n int) {
	eachNumber(text, func(int) bool { n++; return true })
	return n
}

func nthNumber(text []byte, n int) (start int) {
	eachNumber(text, func(i int) bool {
		start = i
		n--
		return n >= 0
	})
	return start
}

func eachNumber(text []byte, f func(start int) bool) {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i = skipString(text, i)
		case c == '-' || '0' <= c && c <= '9':
			if !f(i) {
				return
			}
			i = skipNumber(text, i)
		default:
			i++
		}
	}
}

func isPlainInteger(token []byte) bool {
	for _, c := range token {
		if c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}

// appendDouble writes a double as RFC 8785 does.
func appendDouble(to []byte, f float64) []byte {
	if f == 0 {
		return append(to, '0') // without a sign
	}
	return jsontext.AppendFloat(to, f, 64)
}

// shortInteger returns the form with an exponent of a plain integer that has more
// than 21 digits, if that is the same number, and "0" for "-0"; nil for all whose
// digits are their form.
func (c *canonicalizer) shortInteger(to, token []byte) []byte {
	if string(token) == "-0" {
		return append(to, '0')
	}
	digits := bytes.TrimPrefix(token, []byte("-"))
	significant := bytes.TrimRight(digits, "0")
	if len(digits) <= longestPlain || len(significant) > 17 {
		return nil
	}
	f, ok := c.double(token)
	if !ok {
		return nil
	}
	to = appendDouble(to, f)
	if again, point := c.decimal(to); string(again) != string(significant) || point != int64(len(digits)) {
		return nil
	}
	return to
}

// decimal reads a number without its sign as 0.DIGITS × 10^point, where the digits
// neither start nor end with a zero. Zero has none. What lies beyond mostDigits
// digits is one more that is not zero. The digits are valid until the next call.
func (c *canonicalizer) decimal(token []byte) (digits []byte, point int64) {
	digits = c.digits[:0]
	mantissa, exponent := token, []byte(nil)
	if i := bytes.IndexAny(token, "eE"); i >= 0 {
		mantissa, exponent = token[:i], token[i+1:]
	}
	fraction := false
	for _, d := range mantissa {
		switch {
		case d == '.':
			fraction = true
			continue
		case d < '0' || d > '9':
			continue
		case d == '0' && len(digits) == 0:
			if fraction {
				point--
			}
			continue
		case len(digits) < mostDigits:
			digits = append(digits, d)
		case d != '0' && len(digits) == mostDigits:
			digits = append(digits, '1')
		}
		if !fraction {
			point++
		}
	}
	c.digits = digits
	return bytes.TrimRight(digits, "0"), point + parseExponent(exponent)
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

// double returns the double next to a number, half way the even one (IEEE 754), and
// false if there is none. It is strconv.ParseFloat, which takes up to a thousand
// times as long for numbers below 2^-1022 or about half way between two doubles.
func (c *canonicalizer) double(token []byte) (f float64, ok bool) {
	digits, point := c.decimal(token)
	exp := point - int64(len(digits))
	switch {
	case len(digits) == 0 || point < -323:
		return 0, true
	case point > 309:
		return 0, false
	case len(digits) > safeDigits || exp < -22 || exp > 22:
		f = c.exact(digits, int(exp))
	case exp < 0:
		f = float64(whole(digits)) / tens[-exp]
	default:
		f = float64(whole(digits)) * tens[exp]
	}
	if token[0] == '-' {
		f = -f
	}
	return f, !math.IsInf(f, 0)
}

// whole reads up to 19 digits.
func whole(digits []byte) (n uint64) {
	for _, d := range digits {
		n = n*10 + uint64(d-'0')
	}
	return n
}

// exact returns the double next to digits × 10^exp. It divides in whole numbers: the
// number is num/den × 2^exp.
func (c *canonicalizer) exact(digits []byte, exp int) float64 {
	num, den := &c.num, c.power(0)
	if len(digits) <= 19 {
		num.SetUint64(whole(digits))
	} else {
		num.SetString(string(digits), 10)
	}
	if exp >= 0 {
		num.Mul(num, c.power(exp))
	} else {
		den = c.power(-exp)
	}
	// A double has 53 bits, and no bit below 2^-1074. The quotient gets two bits more
	// at least, of which the last one tells whether anything is left.
	last := max(num.BitLen()-den.BitLen()+exp-56, -1076)
	if shift := exp - last; shift >= 0 {
		num.Lsh(num, uint(shift))
	} else {
		den = c.den.Lsh(den, uint(-shift))
	}
	c.quo.QuoRem(num, den, &c.rest)
	bits := c.quo.Uint64()
	if c.rest.Sign() != 0 {
		bits |= 1
	}
	if last == -1076 && bits < 1<<54 {
		// Below 2^-1022 doubles are multiples of 2^-1074, and their bits the factor.
		n := bits >> 2
		if bits&3 == 3 || bits&3 == 2 && n&1 == 1 {
			n++
		}
		return math.Float64frombits(n)
	}
	return math.Ldexp(float64(bits), last)
}

// power is a power of five, kept as long as its document is read.
func (c *canonicalizer) power(n int) *big.Int {
	p, ok := c.powers[n]
	if !ok {
		p = new(big.Int).Exp(big.NewInt(5), big.NewInt(int64(n)), nil)
		if c.powers == nil {
			c.powers = map[int]*big.Int{}
		}
		c.powers[n] = p
	}
	return p
}
