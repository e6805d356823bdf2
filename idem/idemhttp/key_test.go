package idemhttp

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
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

// A derived key must never change: producers would send their requests again under another one.
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
		logged := defaultLog(t)
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

// Each request that begins without a key is reported once, with its tenant and operation, and no other is.
func TestRequestsWithoutAKeyAreReported(t *testing.T) {
	bare := func(r *Request) { delete(r.Header, "idempotency-key") }
	key := func(value string) func(*Request) {
		return func(r *Request) { r.Header["idempotency-key"] = []string{value} }
	}
	ambiguous := func(r *Request) { r.Body = []byte(`{"a":1,"a":2}`) }
	stripe := func(o *Options) { o.Profile = Stripe }
	pointer := func(o *Options) { o.Key = KeyPointer("/id") }
	none := func(o *Options) {
		o.Key = KeyFrom(func(context.Context, *Request) (string, error) { return "", ErrNoKey })
	}
	only := func(route string) func(*Options) {
		return func(o *Options) {
			o.KeyOptional, o.ByRoute = false, map[string]RouteOptions{route: {KeyOptional: true}}
		}
	}
	for name, row := range map[string]struct {
		change func(*Request)
		option func(*Options)
		status int
		want   int // of two requests
	}{
		"no key":              {bare, nil, 201, 2},
		"no key in body":      {nil, pointer, 201, 2},
		"none of its own":     {nil, none, 201, 2},
		"key":                 {nil, nil, 201, 0},
		"bad key":             {key("x"), nil, 400, 0},
		"empty key":           {key(""), nil, 400, 0},
		"empty key, Stripe":   {key(""), stripe, 400, 0},
		"no key, Stripe":      {bare, stripe, 201, 2},
		"key, Stripe":         {nil, stripe, 201, 0},
		"no tenant":           {func(r *Request) { bare(r); r.Identity = Identity{} }, nil, 403, 0},
		"ambiguous body":      {func(r *Request) { bare(r); ambiguous(r) }, nil, 201, 2},
		"ambiguous body, key": {ambiguous, nil, 400, 0},
		"undeclared":          {func(r *Request) { bare(r); r.Route, r.Path = "/a", "/a" }, nil, 500, 0},
		"one route":           {bare, only("POST /payments"), 201, 2},
		"another route":       {bare, only("POST /transfers/{id}"), 400, 0},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				op, n, seen, r := charge, 0, new(observed), payment()
				op.Shadow = shadow
				e, err := idem.New(memory(), &idem.Options{Observer: seen.observe})
				require.NoError(t, err)
				routes := Routes{"POST /payments": op, "POST /transfers/{id}": transfer}
				c := contractFor(t, e, routes, Claim("tenant"), func(o *Options) {
					if o.KeyOptional = true; row.option != nil {
						row.option(o)
					}
				})
				if row.change != nil {
					row.change(r)
				}
				for range 2 {
					if res := serve(t, c, r, counting(&n, created())); !shadow {
						require.Equal(t, row.status, res.Status)
					}
				}
				seen.all = slices.DeleteFunc(seen.all, func(n notice.Notice) bool { return n.Kind != notice.Keyless })
				require.Len(t, seen.all, row.want)
				for _, n := range seen.all {
					require.Equal(t, "blue charge", n.Tenant+" "+n.Operation)
				}
				if row.want > 0 {
					require.NotEqual(t, seen.all[0].ID, seen.all[1].ID)
					require.Equal(t, 2, n)
				} else if row.status == 201 && !shadow {
					require.Equal(t, 1, n, "a key counts where it is optional")
				}
			})
		}
	}
}

// A request without a key can be accepted for later, too: its 202 alone leads to its outcome.
func TestARequestWithoutAKeyIsAcceptedForLater(t *testing.T) {
	b := newLaterService(t, memory(), func(_ *Later, o *Options) { o.KeyOptional = true })
	seen := map[string]bool{}
	for range 2 {
		r := asked(june)
		delete(r.Header, "idempotency-key")
		res := serve(t, b.contract, r, nil)
		require.Equal(t, 202, res.Status)
		seen[res.Headers["Location"]] = true
	}
	require.Len(t, seen, 2)
	require.Len(t, b.handed, 2)
}
