package idem_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/require"
)

var charge = idem.Operation{Name: "charge"}

func TestKeyID(t *testing.T) {
	// The digest is the SHA-256 of "x", so that a change of the form is seen: it would forget every record.
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
	parts := []string{"a", "b", "ab", "a#b", "a%23b", "a%2523b", "#", "##", "%", "%23", "/", "a/b", " ", "a ", "A", "null",
		"[]", "[null]", "\x00", "\x00\x00", "\xff", "\xfe", "ü", "u\u0308", "a\nb", "charge", "-", "_", "~", "."}
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
		require.Empty(t, strings.Trim(one.ID(), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~%#"))
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

// The downstream token is the same on every attempt, after takeover, release and expiry, and in every process. Each
// step has its own, and so has each compensation. An operation that runs from within a step is one of its own: its
// token does not depend on where it is called from, and it may have steps.
func TestTokenIsStable(t *testing.T) {
	r, key := rigOn(t, safe)
	inner := safe.Key("t", "inner")
	tokens := map[string]map[string]int{}
	note := func(ctx context.Context, what, step string) {
		info, ok := idem.InfoOf(ctx)
		require.True(t, ok)
		require.Equal(t, idem.Token(ctx), info.Token)
		require.Equal(t, step, info.Step)
		if tokens[what] == nil {
			tokens[what] = map[string]int{}
		}
		tokens[what][info.Token]++
	}
	nested := func(ctx context.Context) {
		_, err := idem.Do(ctx, r.elsewhere(t).engine, inner, 1, func(ctx context.Context, _ int) (string, error) {
			note(ctx, "inner", "")
			_, err := idem.Step(ctx, "ship", r.e.step("ship"), nil)
			return "", errors.Join(err, errPlain)
		})
		require.ErrorIs(t, err, errPlain)
	}
	attempt := func(process *rig, end error) {
		_, _ = idem.Do(t.Context(), process.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
			note(ctx, "handler", "")
			for _, name := range []string{"a", "b"} {
				_, _ = idem.Step(ctx, name, func(ctx context.Context) (int, error) {
					note(ctx, name, name)
					nested(ctx)
					return 0, idem.NotExecuted(errPlain)
				}, nil)
			}
			_, err := idem.Step(ctx, "pay", r.e.step("pay"), &idem.StepConfig[receiptOf]{
				Compensate: func(ctx context.Context, _ receiptOf) error { note(ctx, "undo", "idem:undo:pay"); return errPlain },
			})
			require.NoError(t, err)
			note(ctx, "handler", "")
			return 1, end
		})
	}
	attempt(r, errPlain)
	attempt(r.elsewhere(t), idem.NotExecuted(errPlain))
	attempt(r.elsewhere(t), idem.Permanent(errPlain))
	attempt(r, idem.Permanent(errPlain))
	deleted(t, r, key)
	attempt(r, nil)
	r.clock.Advance(48 * time.Hour)
	attempt(r, nil)
	nested(t.Context())
	require.Len(t, tokens, 5)
	require.Equal(t, map[string]int{tokenFor(t, inner): tokens["a"][onlyKey(t, tokens["a"])]*2 + 1}, tokens["inner"])
	require.Equal(t, map[string]int{tokenFor(t, key): 12}, tokens["handler"])
	all := map[string]bool{}
	for _, same := range tokens {
		all[onlyKey(t, same)] = true
	}
	require.Len(t, all, 5)
	require.Equal(t, 2, tokens["undo"][onlyKey(t, tokens["undo"])])
	require.Equal(t, 1, r.e.ran("ship"))
}

func onlyKey(t *testing.T, m map[string]int) string {
	t.Helper()
	require.Len(t, m, 1)
	for k := range m {
		return k
	}
	return ""
}

func tokenFor(t *testing.T, key idem.Key) string {
	t.Helper()
	tok := must(t, newRig(t, nil), key, func(ctx context.Context, _ int) (string, error) { return idem.Token(ctx), nil })
	return tok
}

func TestTokensDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []idem.Key{
		safe.Key("acme", "1"), safe.Key("acme", "2"), safe.Key("other", "1"), unsafe.Key("acme", "1"),
		safe.Key(idem.SingleTenant, "1"), safe.Key("acme#safe", "1"),
	} {
		tok := tokenFor(t, key)
		require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), tok)
		require.False(t, seen[tok])
		seen[tok] = true
	}
	// Providers remember tokens for long: a release that changed them would charge twice. This one must never change.
	require.Equal(t, "dd61d9da-df55-88a8-8c1b-d3d9d677a6a2", tokenFor(t, safe.Key("acme", "1")))
}

func TestOutsideAnOperation(t *testing.T) {
	require.PanicsWithValue(t, "idem.Token: the context is not a handler's: pass the context that the handler was given",
		func() { idem.Token(t.Context()) })
	_, ok := idem.InfoOf(t.Context())
	require.False(t, ok)
	require.NotPanics(t, func() { idem.SetNotExecuted(t.Context()) })
}

func TestInfo(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		key := safe.Key("acme", "payment-1")
		uncertainly(t, r, key)
		kill := time.Now().Add(time.Minute).Truncate(time.Millisecond)
		must(t, r.in(idem.WithKillTime(t.Context(), kill)), key, func(ctx context.Context, _ int) (int, error) {
			info, ok := idem.InfoOf(ctx)
			require.True(t, ok)
			require.WithinDuration(t, kill, info.LeaseUntil, time.Millisecond)
			info.LeaseUntil = time.Time{}
			require.Equal(t, idem.Info{ID: key.ID(), Tenant: "acme", Operation: "safe", Attempt: 2, Token: idem.Token(ctx)},
				info)
			return 1, nil
		})
	})
}

// A text that cannot be read is an error, whatever was to be found in it.
func TestValuesAtOfATextThatIsNoJSON(t *testing.T) {
	for _, pointers := range [][]string{nil, {"/id"}, {"/id", "/tenant"}} {
		_, err := idem.ValuesAt([]byte(`{"id":`), "event", pointers...)
		require.ErrorIs(t, err, idem.ErrKeyInvalid)
	}
}

func TestLookup(t *testing.T) {
	r, key := rigOn(t, unsafe)
	look := func() *idem.Record {
		t.Helper()
		s, err := r.engine.Lookup(t.Context(), key)
		require.NoError(t, err)
		return s
	}
	require.Nil(t, look())
	parked(t, r, key)
	s := look()
	require.Equal(t, idem.Unknown, s.State)
	require.Equal(t, 1, s.Attempt)
	require.Equal(t, errPlain.Error(), s.Failure.Message)
	require.True(t, s.ExpiresAt.IsZero())
	require.Equal(t, []idemtest.Method{"Get"}, r.faults.Calls(), "one call")

	done := unsafe.Key("t", "done")
	must(t, r, done, new(counter).run)
	s, err := r.engine.Lookup(t.Context(), done)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, s.State)
	require.Equal(t, r.record(t, done).ExpiresAt, s.ExpiresAt)
	r.clock.Advance(idem.DefaultRetention + time.Minute)
	s, err = r.engine.Lookup(t.Context(), done)
	require.NoError(t, err)
	require.True(t, s.Expired(r.engine.Now()), "as if there were none")

	_, err = r.engine.Lookup(t.Context(), idem.Key{})
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
	r.faults.Next(idemtest.Get, idemtest.Refuse, idemtest.Unreadable, idemtest.Unreadable)
	_, err = r.engine.Lookup(t.Context(), key)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	_, err = r.engine.Lookup(t.Context(), key)
	require.ErrorIs(t, err, idem.ErrRecordUnreadable)
}
