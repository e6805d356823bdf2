// Package canonicaltest has what the tests of package canonical and its comparison with the
// reference, a module of its own, share.
package canonicaltest

import (
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// AddSeeds adds the files of the folder testdata; found.txt has what longer runs of the
// fuzzers found worth keeping, one Go string a line.
func AddSeeds(f *testing.F, testdata string) {
	files, err := filepath.Glob(filepath.Join(testdata, "*.json"))
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text)
	}
	for _, line := range SeedLines(f, filepath.Join(testdata, "found.txt")) {
		text, err := strconv.Unquote(line)
		require.NoError(f, err)
		f.Add([]byte(text))
	}
	for _, text := range []string{
		`{"b":[1,2.5,-0],"a":{"":null}}`, `[1e21,1000000000000000000000,9007199254740993]`,
		`[9007199254740993.0]`, `"\ud83d\ude00\u2028"`, `"\ud800"`, `{"a":1,"\u0061":2}`, "\xef\xbb\xbf1", `1e400`,
	} {
		f.Add([]byte(text))
	}
}

// SeedLines are the lines of a file of seeds.
func SeedLines(f *testing.F, file string) []string {
	text, err := os.ReadFile(file)
	require.NoError(f, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Greater(f, len(lines), 20)
	return lines
}

// IsRounded reports whether a number has a fraction or an exponent and more than 17 significant
// digits, and is not a double.
func IsRounded(text string) bool {
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	if len(strings.Trim(strings.ReplaceAll(mantissa, ".", ""), "-0")) <= 17 || !strings.ContainsAny(text, ".eE") {
		return false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	value, ok := RatOf(text)
	return !ok || value.Cmp(new(big.Rat).SetFloat64(f)) != 0
}

// SameDecimal reports whether two numbers have one exact value.
func SameDecimal(a, b string) bool {
	x, xOK := RatOf(a)
	y, yOK := RatOf(b)
	return xOK && yOK && x.Cmp(y) == 0
}

// RatOf is the exact value of a number whose exponent is within reason.
func RatOf(text string) (*big.Rat, bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if !strings.ContainsAny(mantissa, "123456789") {
		return new(big.Rat), true
	}
	if exponent != "" {
		if n, err := strconv.Atoi(exponent); err != nil || n > 10_000 || n < -10_000 {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}
