package idemhttp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// Two issuers give out the same subject, and issuer and subject never run together.
func TestSubjectsOfSeveralIssuersAreApart(t *testing.T) {
	tenant := IssuerClaim("sub")
	of := func(iss, sub string) (string, error) {
		return tenant(t.Context(), &Request{Identity: Identity{Claims: map[string]string{"iss": iss, "sub": sub}}})
	}
	const long = "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_AbCdEf123"
	seen := map[string]bool{}
	for _, c := range [][2]string{{"https://a.example", "1"}, {"https://b.example", "1"}, {"https://a.example/1", "2"}, {"https://a.example", "1/2"}, {long, "1"}} {
		got, err := of(c[0], c[1])
		require.NoError(t, err)
		require.NoError(t, idem.Operation{Name: "charge"}.Key(got, "k").Err(), "as long as a tenant may be")
		require.False(t, seen[got], c)
		seen[got] = true
		again, err := of(c[0], c[1])
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, c := range [][2]string{{"", "1"}, {long, ""}, {"", ""}} {
		_, err := of(c[0], c[1])
		require.ErrorIs(t, err, ErrTenantMissing, c)
	}
	require.Panics(t, func() { IssuerClaim("") })
}
