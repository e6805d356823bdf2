package idemhttp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"

	"github.com/idem-go/idempotency/idem"
)

// IssuerClaim takes the tenant from a claim of a verified token and from who issued it
// (iss): for functions that the tokens of several issuers reach, each of which gives out
// its subjects as it likes (RFC 7519, 4.1.2: a subject need only be unique within its
// issuer). Both together are longer than a tenant may be, so that the tenant is their
// SHA-256, 43 characters of base64url. [Claim] says which claims to take. An empty name
// panics.
func IssuerClaim(name string) TenantFunc {
	mustName("IssuerClaim", name)
	return func(_ context.Context, r *Request) (string, error) {
		both := idem.JoinValues(r.Identity.Claims["iss"], r.Identity.Claims[name])
		if both == "" {
			return "", ErrNoTenant
		}
		sum := sha256.Sum256([]byte(both))
		return base64.RawURLEncoding.EncodeToString(sum[:]), nil
	}
}
