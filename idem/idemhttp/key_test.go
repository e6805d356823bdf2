package idemhttp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

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

// A key that is easy to guess is served as any other, and logged once for each route, without the key.
func TestAKeyThatIsEasyToGuessIsLoggedOnce(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		was := slog.Default()
		defer slog.SetDefault(was)
		var logged bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
		first, second := charge, transfer
		first.Shadow, second.Shadow = shadow, shadow
		c := contractFor(t, newEngine(t, memory()), Routes{"POST /payments": first, "POST /transfers/{id}": second},
			Claim("tenant"))
		send := func(path, key string) {
			r := payment()
			r.Route, r.Path, r.Header["idempotency-key"] = path, path, []string{key}
			require.Equal(t, 201, serve(t, c, r, func(context.Context) (*Response, error) { return created(), nil }).Status)
		}
		warnings := func() int { return strings.Count(logged.String(), "easy to guess") }
		send("/payments", testKey)
		require.Zero(t, warnings())
		for n := range 3 {
			send("/payments", fmt.Sprintf("payment-%010d", n))
		}
		require.Equal(t, 1, warnings())
		require.NotContains(t, logged.String(), "payment-0")
		require.Contains(t, logged.String(), "operation=charge method=POST route=/payments")
		send("/transfers/{id}", strings.Repeat("a", 16))
		require.Equal(t, 2, warnings())
	}
}
