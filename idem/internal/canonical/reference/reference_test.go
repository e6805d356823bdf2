package reference

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/internal/canonical"
	"github.com/idem-go/idempotency/idem/internal/canonical/canonicaltest"
)

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
