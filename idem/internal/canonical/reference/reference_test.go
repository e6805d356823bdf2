package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/internal/canonical"
	"github.com/idem-go/idempotency/idem/internal/canonical/canonicaltest"
)

func canonicalOf(t *testing.T, text string) string {
	t.Helper()
	out, err := canonical.Append(nil, []byte(text))
	require.NoError(t, err, "%.200q", text)
	return string(out)
}

// TestCanonicalIgnoresPresentation shuffles members, spreads white space and
// varies escapes and number spellings of random documents. The reference agrees on
// all that hold no integer which it rounds.
func TestCanonicalIgnoresPresentation(t *testing.T) {
	random, compared := rand.New(rand.NewSource(8785)), 0
	for range 2000 {
		value := randomValue(random, 5)
		want := canonicalOf(t, spell(random, value))
		for range 5 {
			text := spell(random, value)
			require.Equal(t, want, canonicalOf(t, text), "%s", text)
		}
		require.Equal(t, want, canonicalOf(t, want))
		require.True(t, json.Valid([]byte(want)))
		if !holdsKeptInteger([]byte(want)) {
			reference, err := jcs.Transform([]byte(spell(random, value)))
			require.NoError(t, err)
			require.Equal(t, string(reference), want)
			compared++
		}
	}
	require.Greater(t, compared, 1000)
}

type spelledNumber []string

func randomValue(random *rand.Rand, depth int) any {
	kind := random.Intn(8)
	if depth == 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		return []any{nil, true, false}[random.Intn(3)]
	case 1, 2:
		return randomString(random)
	case 3:
		n := 1 + random.Int63()>>random.Intn(62)
		if n >= 1<<53 {
			return spelledNumber{strconv.FormatInt(n, 10)}
		}
		return spelledNumber{strconv.FormatInt(n, 10), fmt.Sprintf("%d.0", n), fmt.Sprintf("%de0", n),
			fmt.Sprintf("%d00E-2", n)}
	case 4:
		f := random.NormFloat64() * math.Pow10(random.Intn(60)-30)
		return spelledNumber{
			strconv.FormatFloat(f, 'e', -1, 64), strconv.FormatFloat(f, 'f', -1, 64) +
				".0"[min(2, 2*strings.Count(strconv.FormatFloat(f, 'f', -1, 64), ".")):],
			strconv.FormatFloat(f, 'e', 16, 64), strconv.FormatFloat(f, 'e', 766, 64),
		}
	case 5:
		list := make([]any, random.Intn(5))
		for i := range list {
			list[i] = randomValue(random, depth-1)
		}
		return list
	}
	members := map[string]any{}
	for range random.Intn(8) {
		members[randomString(random)] = randomValue(random, depth-1)
	}
	return members
}

func randomString(random *rand.Rand) string {
	alphabet := []rune("aAbB09/\\\"\x00\n\x1f\x7f é€\u2028\ue000\U0001F600\U00010000")
	text := make([]rune, random.Intn(5))
	for i := range text {
		text[i] = alphabet[random.Intn(len(alphabet))]
	}
	return string(text)
}

// spell writes a value in one of its many ways.
func spell(random *rand.Rand, value any) string {
	space := func() string { return strings.Repeat([]string{" ", "\n", "\t", "\r"}[random.Intn(4)], random.Intn(2)) }
	switch v := value.(type) {
	case spelledNumber:
		return v[random.Intn(len(v))]
	case string:
		var b strings.Builder
		for _, unit := range v {
			if unit < 0x10000 && (random.Intn(3) == 0 || unit < ' ' || unit == '"' || unit == '\\') {
				fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[random.Intn(2)], unit)
			} else {
				b.WriteRune(unit)
			}
		}
		return `"` + b.String() + `"`
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = space() + spell(random, v[i]) + space()
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		var parts []string
		for name, member := range v {
			parts = append(parts, space()+spell(random, name)+space()+":"+space()+spell(random, member)+space())
		}
		random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		return "{" + strings.Join(parts, ",") + "}"
	}
	text, _ := json.Marshal(value)
	return string(text)
}

// FuzzCanonicalAgainstReference compares with another implementation of RFC 8785.
//
// Where both accept a text the bytes are the same, unless the text holds a plain
// integer that is not the shortest decimal of its nearest double: the reference
// rounds it, this package keeps its digits. Where only the reference accepts, the
// text nests too deep, or has a number with more digits than a double holds, or too
// many next to zero. Where only this package accepts, the text holds a plain
// integer beyond the doubles. No other difference is known, and the fuzzer fails on
// any.
func FuzzCanonicalAgainstReference(f *testing.F) {
	canonicaltest.AddSeeds(f, "../testdata")
	f.Fuzz(func(t *testing.T, raw []byte) {
		mine, myErr := canonical.Append(nil, raw)
		reference, theirErr := jcs.Transform(bytes.Clone(raw))
		switch {
		case myErr == nil && theirErr == nil:
			require.False(t, holdsRoundedNumber(raw), "%q", raw)
			if !holdsKeptInteger(raw) {
				require.Equal(t, string(reference), string(mine))
			}
		case myErr == nil:
			require.True(t, holdsKeptInteger(raw), "only the reference refuses %q: %v", raw, theirErr)
		case theirErr == nil:
			require.Regexp(t, "deep|significant digits|closer to zero", myErr, "only this package refuses %q", raw)
			if strings.Contains(myErr.Error(), "significant digits") {
				require.True(t, holdsRoundedNumber(raw), "%q", raw)
			}
		}
	})
}

// holdsKeptInteger reports, by the standard library's means, whether a text has a
// plain integer whose nearest double reads back as another decimal.
func holdsKeptInteger(raw []byte) bool {
	return holds(raw, func(number string) bool {
		if strings.ContainsAny(number, ".eE") {
			return false
		}
		f, err := strconv.ParseFloat(number, 64)
		return err != nil || !canonicaltest.SameDecimal(number, strconv.FormatFloat(f, 'e', -1, 64))
	})
}

// holdsRoundedNumber reports whether a text has a number with a fraction or an exponent
// and more than 17 significant digits that is not a double.
func holdsRoundedNumber(raw []byte) bool { return holds(raw, canonicaltest.IsRounded) }

// holds reports whether a text has such a number.
func holds(raw []byte, such func(number string) bool) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		if number, ok := token.(json.Number); ok && such(number.String()) {
			return true
		}
	}
}
