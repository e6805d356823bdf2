package idem_test

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// The downstream token is the same on every attempt, after takeover, release and
// expiry, and in every process.
func TestTokenIsStable(t *testing.T) {
	r := newRig(t, nil)
	key := safe.Key("acme", "payment-1")
	tokens := map[string]int{}
	attempt := func(e *idem.Engine, err error) {
		t.Helper()
		_, _ = idem.Do(t.Context(), e, key, 1, func(ctx context.Context, _ int) (int, error) {
			tokens[idem.Token(ctx)]++
			info, ok := idem.InfoOf(ctx)
			require.True(t, ok)
			require.Equal(t, idem.Token(ctx), info.Token)
			return 1, err
		})
	}
	attempt(r.engine, errPlain)
	attempt(r.elsewhere(t).engine, idem.NotExecuted(errPlain))
	attempt(r.elsewhere(t).engine, nil)
	r.clock.Advance(48 * time.Hour)
	attempt(r.engine, nil)
	r.mem.Delete(key.ID())
	attempt(r.engine, nil)
	require.Equal(t, 5, tokens[onlyKey(t, tokens)])
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
	tok, err := idem.Do(t.Context(), newRig(t, nil).engine, key, 1, func(ctx context.Context, _ int) (string, error) {
		return idem.Token(ctx), nil
	})
	require.NoError(t, err)
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
	// Providers remember tokens for long: a release that changed them would charge
	// twice. This one must never change.
	require.Equal(t, "dd61d9da-df55-88a8-8c1b-d3d9d677a6a2", tokenFor(t, safe.Key("acme", "1")))
}

func TestTokenOfNestedOperations(t *testing.T) {
	r := newRig(t, nil)
	outer, inner := safe.Key("t", "outer"), safe.Key("t", "inner")
	_, err := idem.Do(t.Context(), r.engine, outer, 1, func(ctx context.Context, _ int) (int, error) {
		before := idem.Token(ctx)
		_, err := idem.Do(ctx, r.engine, inner, 1, func(ctx context.Context, _ int) (int, error) {
			require.Equal(t, tokenFor(t, inner), idem.Token(ctx))
			return 1, nil
		})
		require.Equal(t, before, idem.Token(ctx))
		return 1, err
	})
	require.NoError(t, err)
}

func TestOutsideAnOperation(t *testing.T) {
	require.PanicsWithValue(t, "idem.Token: the context is not a handler's: pass the context that the handler was given",
		func() { idem.Token(t.Context()) })
	_, ok := idem.InfoOf(t.Context())
	require.False(t, ok)
	require.NotPanics(t, func() { idem.SetNotExecuted(t.Context()) })
}

func TestInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		key := safe.Key("acme", "payment-1")
		uncertainly(t, r, key)
		kill := time.Now().Add(time.Minute).Truncate(time.Millisecond)
		_, err := idem.Do(idem.WithKillTime(t.Context(), kill), r.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
			info, ok := idem.InfoOf(ctx)
			require.True(t, ok)
			require.WithinDuration(t, kill, info.LeaseUntil, time.Millisecond)
			info.LeaseUntil = time.Time{}
			require.Equal(t, idem.Info{
				ID: key.ID(), Tenant: "acme", Operation: "safe", Attempt: 2, Token: idem.Token(ctx),
			}, info)
			return 1, nil
		})
		require.NoError(t, err)
	})
}
