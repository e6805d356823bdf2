package idemhttp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
)

// A request that breaks its handler every time runs as often as its operation may. Its
// client is told then not to try again.
func TestRequestThatFailsEveryTimeIsParked(t *testing.T) {
	op := idem.Operation{Name: "transfer", Repeat: idem.Repeatable, MaxAttempts: 3}
	c, err := New(newEngine(t, memstore.New()), Routes{"POST /payments": op}, Claim("tenant"), nil)
	require.NoError(t, err)
	runs := 0
	for range 3 {
		require.Equal(t, 500, serve(t, c, payment(), counting(&runs, &Response{Status: 500})).Status)
	}
	for range 2 {
		res := serve(t, c, payment(), counting(&runs, created()))
		require.Equal(t, 409, res.Status)
		require.Contains(t, string(res.Body), `"code":"outcome_unknown"`)
		require.Contains(t, string(res.Body), `"retryable":false`)
	}
	require.Equal(t, 3, runs)
}
