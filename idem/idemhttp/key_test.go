package idemhttp

import (
	"regexp"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

func TestKeyForms(t *testing.T) {
	long := strings.Repeat("k", MaxKey)
	for name, c := range map[string]struct {
		values []string
		want   string // empty: refused
	}{
		"bare":                    {[]string{testKey}, testKey},
		"structured":              {[]string{`"` + testKey + `"`}, testKey},
		"white space around":      {[]string{" \t" + testKey + " "}, testKey},
		"white space structured":  {[]string{"\t \"" + testKey + "\"\t"}, testKey},
		"all characters":          {[]string{"AZaz09-._~:AZaz09"}, "AZaz09-._~:AZaz09"},
		"16":                      {[]string{"1234567890123456"}, "1234567890123456"},
		"15":                      {[]string{"123456789012345"}, ""},
		"255":                     {[]string{long}, long},
		"256":                     {[]string{long + "k"}, ""},
		"structured 255":          {[]string{`"` + long + `"`}, long},
		"structured 256":          {[]string{`"` + long + `k"`}, ""},
		"empty":                   {[]string{""}, ""},
		"blank":                   {[]string{"   "}, ""},
		"empty structured":        {[]string{`""`}, ""},
		"repeated":                {[]string{testKey, testKey}, ""},
		"repeated, joined":        {[]string{testKey + "," + testKey}, ""},
		"repeated and structured": {[]string{`"` + testKey + `", "` + testKey + `"`}, ""},
		"halves, joined":          {[]string{`"12345678,12345678"`}, ""},
		"parameter":               {[]string{`"` + testKey + `";a=1`}, ""},
		"flag parameter":          {[]string{`"` + testKey + `";a`}, ""},
		"open quote":              {[]string{`"` + testKey}, ""},
		"escape":                  {[]string{`"1234567890\"123456"`}, ""},
		"bad escape":              {[]string{`"1234567890\n123456"`}, ""},
		"byte sequence":           {[]string{":MTIzNDU2Nzg5MDEyMzQ1Ng==:"}, ""},
		"inner space":             {[]string{"12345678 12345678"}, ""},
		"umlaut":                  {[]string{"1234567890123456ä"}, ""},
		"control character":       {[]string{"1234567890123456\x00"}, ""},
		"slash":                   {[]string{"12345678/12345678"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := keyIn(c.values...)
			if c.want == "" {
				require.Error(t, err)
				for _, v := range c.values {
					if v = strings.TrimSpace(v); v != "" {
						require.NotContains(t, err.Error(), v, "the error repeats what was sent")
					}
				}
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, key)
		})
	}
}

// keyIn is the key in a header's values, by the default rules.
func keyIn(values ...string) (string, error) {
	c := &Contract{}
	key, err := c.parseKey(values)
	if err != nil {
		return "", err
	}
	return key, c.checkKey(key, DefaultMinKey)
}

var keyGrammar = regexp.MustCompile(`^[A-Za-z0-9._~:-]{16,255}$`)

// checkKeys serves a request with the header's values: nothing panics, and
// whatever reaches the store matches the grammar.
func checkKeys(t *testing.T, values ...string) {
	got, _ := keyAfter(t, payment(func(r *Request) { r.Header["idempotency-key"] = values }))
	key, err := keyIn(values...)
	if err != nil {
		require.Equal(t, string(CodeKeyInvalid), got)
		return
	}
	require.Regexp(t, keyGrammar, key)
	require.Equal(t, key, got)
}

var keySeeds = []string{
	testKey, `"` + testKey + `"`, `"a";b`, `"`, ",", ":YQ==:", "?1", `%"a"`, "@1", "\x00", "ä",
	strings.Repeat("k", MaxKey),
	`"1234567890\"123456"`, `"1234567890\\123456"`, " " + testKey + "\t", `"` + testKey + `";a=1`, testKey + "," + testKey,
	`("` + testKey + `")`,
}

func FuzzKey(f *testing.F) {
	for _, v := range keySeeds {
		f.Add(v, "", false)
		f.Add(v, v, true)
	}
	f.Fuzz(func(t *testing.T, first, second string, two bool) {
		if two {
			checkKeys(t, first, second)
		} else {
			checkKeys(t, first)
		}
	})
}

// A derived key must never change: producers would send their requests again
// under another one.
func TestDerivedKeysAreForEver(t *testing.T) {
	lists := [][]string{
		{"order", "4711", "capture"}, {"order", "4711", "refund"}, {"order", "471", "1capture"}, {"order4711capture"},
		{"capture", "4711", "order"}, {"a"}, {"a", "a"}, {"ä"}, {"\x00", "\xff"}, {strings.Repeat("k", 10_000)},
	}
	var b strings.Builder
	seen := map[string]bool{}
	for _, parts := range lists {
		key, err := DeriveKey(parts...)
		require.NoError(t, err)
		require.False(t, seen[key], parts)
		seen[key] = true
		b.WriteString(key + "\n")
	}
	golden(t, "derived-keys", []byte(b.String()))
}

func TestDeriveKeyRefusesMissingParts(t *testing.T) {
	for _, parts := range [][]string{nil, {""}, {"order", ""}, {"", "4711"}} {
		key, err := DeriveKey(parts...)
		require.ErrorIs(t, err, idem.ErrKeyInvalid)
		require.Empty(t, key)
	}
	_, err := DeriveKey("order", "", "capture")
	require.ErrorContains(t, err, "part 2 of 3")
}
