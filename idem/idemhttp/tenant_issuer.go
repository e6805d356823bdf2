package idemhttp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"

	"github.com/idem-go/idempotency/idem"
)

// IssuerClaim takes the tenant from a claim of a verified token and from its issuer (iss).
// It is for functions that get tokens of several issuers: a subject need only be unique
// within its issuer (RFC 7519, 4.1.2). Both together can be longer than a tenant may be, so
// the tenant is their SHA-256, 43 characters of base64url. See [Claim] for the claims to
// use. An empty name panics.
func IssuerClaim(name string) TenantFunc {
	mustName("IssuerClaim", name)
	return func(_ context.Context, r *Request) (string, error) {
		both := idem.JoinValues(r.Identity.Claims["iss"], r.Identity.Claims[name])
		if both == "" {
			return "", ErrTenantMissing
		}
		sum := sha256.Sum256([]byte(both))
		return base64.RawURLEncoding.EncodeToString(sum[:]), nil
	}
}
