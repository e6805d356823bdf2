package secrets_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
)

// A function that makes its operation in each invocation, of the secrets that it has read, remembers no
// more than one that makes it once, and reads the register no more often.
func TestADeclarationInEachInvocationRemembersNothingMore(t *testing.T) {
	store := idemtest.NewFaults(memstore.New())
	place := &protocol.Place{Store: store, Now: time.Now, Margin: idem.DefaultMargin}
	remembered := func() (n int) {
		place.Known.Range(func(k, _ any) bool {
			require.NotContains(t, fmt.Sprintf("%+v", k), "0123456789")
			n++
			return true
		})
		return n
	}
	for _, declare := range []func() *secrets.Secrets{
		func() *secrets.Secrets { return secrets.StillPlain(secretA) },
		func() *secrets.Secrets { return secrets.AfterPlain(secretA) },
		func() *secrets.Secrets { return secrets.New(secretA) },
		func() *secrets.Secrets { return secrets.New(secretA, secretB) },
	} {
		before := remembered()
		store.Reset()
		for range 100 {
			_, err := declare().Name("t#charge#", "4711").Claim(t.Context(), place)
			require.NoError(t, err)
		}
		require.Equal(t, before+1, remembered(), "each list is read for itself")
		reads := 0
		for _, m := range store.Calls() {
			if m == idemtest.Register {
				reads++
			}
		}
		require.Equal(t, 1, reads)
	}
}
