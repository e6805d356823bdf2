package idemhttp

import (
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

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

// FuzzDeriveKey: lists that differ, by where a text is cut above all, give keys
// that differ, and every key is one that a contract takes.
func FuzzDeriveKey(f *testing.F) {
	f.Add("abc", uint8(1), uint8(2), "abc", uint8(2), uint8(1))
	f.Add("order/4711", uint8(5), uint8(1), "order/4711", uint8(6), uint8(1))
	f.Add("\x00\x00\x00\x00\x00\x00\x00\x01a", uint8(8), uint8(0), "a", uint8(0), uint8(0))
	f.Fuzz(func(t *testing.T, a string, a1, a2 uint8, b string, b1, b2 uint8) {
		one, two := cut(a, a1, a2), cut(b, b1, b2)
		k1, err1 := DeriveKey(one...)
		k2, err2 := DeriveKey(two...)
		require.Equal(t, len(one) == 0, err1 != nil)
		if err1 != nil || err2 != nil {
			return
		}
		require.Equal(t, slices.Equal(one, two), k1 == k2, "%q %q", one, two)
		got, err := keyIn(k1)
		require.NoError(t, err)
		require.Equal(t, k1, got)
		require.Len(t, k1, 46)
	})
}

// cut gives up to three parts of a text, none empty.
func cut(s string, first, second uint8) []string {
	i := min(int(first), len(s))
	j := min(i+int(second), len(s))
	return slices.DeleteFunc([]string{s[:i], s[i:j], s[j:]}, func(p string) bool { return p == "" })
}
