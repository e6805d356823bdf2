package canonical

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/internal/canonical/canonicaltest"
)

// standsFor is the decimal that a number stands for: a plain integer for itself,
// any other number for the shortest one of its double.
func standsFor(t *testing.T, text string) *big.Rat {
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		text = strconv.FormatFloat(f, 'e', -1, 64)
	}
	value, ok := canonicaltest.RatOf(text)
	require.True(t, ok, "%.80s", text)
	return value
}

// FuzzCanonicalMeaning: what is accepted is valid JSON to the standard library, its
// canonical form means the same, is its own canonical form, and is not out of
// proportion.
func FuzzCanonicalMeaning(f *testing.F) {
	canonicaltest.AddSeeds(f, "testdata")
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		out, err := Append([]byte("dst"), raw)
		require.Equal(t, before, raw, "the input is not touched")
		if err != nil {
			require.IsType(t, &Error{}, err)
			require.Equal(t, "dst", string(out))
			require.Less(t, len(err.Error()), 1000)
			return
		}
		out = bytes.TrimPrefix(out, []byte("dst"))
		again, err := Append(nil, out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
		require.LessOrEqual(t, len(out), 6*len(raw), "no amplification: 7e20 has the worst ratio")
		require.Equal(t, meaning(t, raw), meaning(t, out), "%q became %q", raw, out)
	})
}

// FuzzCanonicalNumbers: two numbers get the same bytes exactly if they stand for the
// same decimal, and only what no double reaches or holds is refused.
func FuzzCanonicalNumbers(f *testing.F) {
	for _, pair := range [][2]string{
		{"1", "1.0"}, {"1e21", "1000000000000000000000"}, {"9007199254740993", "9007199254740992.0"},
		{"0.1", "0.10000000000000000001"}, {"-0", "0e9"}, {"5e-324", "1e-323"}, {"1e308", "1e309"},
		{"295147905179352830000", "295147905179352825856"}, {"1e23", "100000000000000000000001"},
	} {
		f.Add(pair[0], pair[1])
	}
	numbers := canonicaltest.SeedLines(f, "testdata/numbers.txt")
	for i := range numbers[1:] {
		f.Add(numbers[i], numbers[i+1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if !isNumber(a) || !isNumber(b) {
			return
		}
		x, xErr := Append(nil, []byte(a))
		y, yErr := Append(nil, []byte(b))
		_, err := strconv.ParseFloat(a, 64)
		require.Equal(t, err != nil && strings.ContainsAny(a, ".eE") || canonicaltest.IsRounded(a), xErr != nil, "%s", a)
		if xErr != nil || yErr != nil {
			return
		}
		require.Equal(t, standsFor(t, a).Cmp(standsFor(t, b)) == 0, string(x) == string(y), "%s %s", a, b)
	})
}

func isNumber(text string) bool {
	return json.Valid([]byte(text)) && len(text) < 2000 && strings.Trim(text, "-+.eE0123456789") == ""
}

// meaning is what the standard library reads, with each number as the decimal that it stands for.
func meaning(t *testing.T, raw []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	require.NoError(t, decoder.Decode(&value))
	_, err := decoder.Token()
	require.ErrorIs(t, err, io.EOF)
	return withDecimals(t, value)
}

func withDecimals(t *testing.T, value any) any {
	switch v := value.(type) {
	case json.Number:
		return json.Number(standsFor(t, v.String()).RatString())
	case []any:
		for i := range v {
			v[i] = withDecimals(t, v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = withDecimals(t, v[name])
		}
	}
	return value
}
