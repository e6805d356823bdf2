package idem_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

var charge = idem.Operation{Name: "charge"}

func TestKeyID(t *testing.T) {
	// The digest is the SHA-256 of "x", so that a change of the form is seen: it
	// would forget every record.
	const x = "LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTbAiWHF5IaSIE"
	for _, c := range []struct{ tenant, operation, id string }{
		{"acme", "charge", "acme#charge#" + x},
		{idem.SingleTenant, "charge", "#charge#" + x},
		{"a#b", "c#d", "a%23b#c%23d#" + x},
		{"a%23b", "charge", "a%2523b#charge#" + x},
		{"Zürich", "a b", "Z%C3%BCrich#a%20b#" + x},
		{"*", "?", "%2A#%3F#" + x},
		{"a-b_c.d~e", "charge", "a-b_c.d~e#charge#" + x},
		{"\xff\x00", "\n", "%FF%00#%0A#" + x},
	} {
		key := idem.Operation{Name: c.operation}.Key(c.tenant, "x")
		require.NoError(t, key.Err())
		require.Equal(t, c.id, key.ID())
		require.Equal(t, c.tenant, key.Tenant())
		require.Equal(t, c.operation, key.Operation().Name)
	}
}

func TestKeyMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		key  idem.Key
		says string
	}{
		"zero":              {idem.Key{}, "Operation.Key"},
		"no tenant":         {charge.Key("", "v"), "idem.SingleTenant"},
		"no value":          {charge.Key("t", ""), "value is empty"},
		"long tenant":       {charge.Key(strings.Repeat("t", 65), "v"), "65 bytes: use at most 64"},
		"long value":        {charge.Key("t", strings.Repeat("v", 1025)), "1025 bytes: use at most 1024"},
		"bytes, not runes":  {charge.Key(strings.Repeat("ü", 33), "v"), "66 bytes"},
		"no parts":          {charge.Key("t", idem.JoinValues()), "value is empty"},
		"one part is empty": {charge.Key("t", idem.JoinValues("a", "")), "value is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, c.key.Err(), idem.ErrKeyInvalid)
			require.ErrorContains(t, c.key.Err(), c.says)
			require.Empty(t, c.key.ID())
		})
	}
}

func TestKeyLimitsAreInclusive(t *testing.T) {
	long := idem.Operation{Name: strings.Repeat("o", 128)}.Key(strings.Repeat("#", 64), strings.Repeat("v", 1024))
	require.NoError(t, long.Err())
	// DynamoDB takes partition keys of up to 2,048 bytes, and parts add to them.
	require.Less(t, len(long.ID()), 2048-256)
}

// A mistake in the operation comes out of the key, as the operation's own error.
func TestKeyOfABadOperation(t *testing.T) {
	key := idem.Operation{Name: strings.Repeat("o", 129)}.Key("t", "v")
	var config *idem.ConfigError
	require.ErrorAs(t, key.Err(), &config)
	require.Empty(t, key.ID())
}

func TestJoinValues(t *testing.T) {
	require.Equal(t, "a/b", idem.JoinValues("a", "b"))
	require.Equal(t, "a%2Fb", idem.JoinValues("a/b"))
	require.Equal(t, "a%252Fb", idem.JoinValues("a%2Fb"))
	require.Equal(t, "%5B%5D", idem.JoinValues("[]"))
	require.Empty(t, idem.JoinValues())
	require.Empty(t, idem.JoinValues(""))
	require.Empty(t, idem.JoinValues("", "b"))
	require.Empty(t, idem.JoinValues("a", "", "c"))
}

// Names that a careless encoding would map onto each other.
func TestKeysThatLookAlikeDiffer(t *testing.T) {
	parts := []string{
		"a", "b", "ab", "a#b", "a%23b", "a%2523b", "#", "##", "%", "%23", "/", "a/b", " ", "a ", "A", "null", "[]",
		"[null]", "\x00", "\x00\x00", "\xff", "\xfe", "ü", "u\u0308", "a\nb", "charge", "-", "_", "~", ".",
	}
	seen := map[string]string{}
	for _, tenant := range parts {
		for _, operation := range parts {
			for _, value := range parts {
				id := idem.Operation{Name: operation}.Key(tenant, value).ID()
				require.NotEmpty(t, id)
				name := fmt.Sprintf("%q %q %q", tenant, operation, value)
				require.Empty(t, seen[id], "%s shares the id %s", name, id)
				seen[id] = name
			}
		}
	}
	joined := map[string]string{}
	for _, a := range parts {
		for _, b := range parts {
			for _, values := range [][]string{{a}, {a, b}, {a, b, a}} {
				v, name := idem.JoinValues(values...), fmt.Sprintf("%q", values)
				require.True(t, joined[v] == "" || joined[v] == name, "%s and %s give %s", name, joined[v], v)
				joined[v] = name
			}
		}
	}
}

// Different (tenant, operation, value) never share an id, and the id is made of
// characters that neither a store nor an IAM policy reads anything into.
func FuzzKey(f *testing.F) {
	f.Add("a", "b", "c", "a#b", "c", "d")
	f.Add("a", "b#c", "d", "a#b", "c", "d")
	f.Add("%", "a", "b", "%25", "a", "b")
	f.Add("\x00", "a", "b", "a", "\x00", "b")
	f.Fuzz(func(t *testing.T, tenant1, operation1, value1, tenant2, operation2, value2 string) {
		one := idem.Operation{Name: operation1}.Key(tenant1, value1)
		two := idem.Operation{Name: operation2}.Key(tenant2, value2)
		require.Equal(t, one.Err() == nil, one.ID() != "")
		if one.Err() != nil || two.Err() != nil {
			return
		}
		same := tenant1 == tenant2 && operation1 == operation2 && value1 == value2
		require.Equal(t, same, one.ID() == two.ID(), "%q and %q", one.ID(), two.ID())
		require.Equal(t, 2, strings.Count(one.ID(), "#"))
		require.Empty(t, strings.Trim(one.ID(),
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~%#"))
	})
}

func FuzzJoinValues(f *testing.F) {
	f.Add("a", "b", "a/b", "")
	f.Add("a/", "b", "a", "/b")
	f.Add("a%2F", "b", "a/", "b")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one, two := idem.JoinValues(a, b), idem.JoinValues(c, d)
		require.Equal(t, a == "" || b == "", one == "")
		if one != "" {
			require.Equal(t, a == c && b == d, one == two)
			require.NotEqual(t, one, idem.JoinValues(a+"/"+b))
			require.NotEqual(t, one, idem.JoinValues(one))
		}
	})
}
