package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Issuer is a local identity provider. It signs and checks JSON Web Tokens (RFC 7519) by
// HMAC with SHA-256, with a key that lives as long as the process. Tokens makes an Authorizer of
// its method Claims. Safe for concurrent use; use NewIssuer.
type Issuer struct {
	key    []byte
	parser *jwt.Parser
}

const issuerName = "https://issuer.local"

// NewIssuer makes an issuer with a fresh key.
func NewIssuer() *Issuer {
	return &Issuer{random(32), jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithIssuer(issuerName), jwt.WithExpirationRequired(), jwt.WithJSONNumber())}
}

// Token makes a token for a subject with further claims, which may be nil. The issuer sets
// iss, sub, iat and exp. A token with a lifetime of zero or less has already expired. A
// claim that JSON cannot encode is an error.
func (i *Issuer) Token(subject string, claims map[string]any, lifetime time.Duration) (string, error) {
	all := jwt.MapClaims{}
	maps.Copy(all, claims)
	now := time.Now()
	all["iss"], all["sub"], all["iat"], all["exp"] = issuerName, subject, now.Unix(), now.Add(lifetime).Unix()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, all).SignedString(i.key)
	if err != nil {
		return "", fmt.Errorf("gateway: sign a token: %w", err)
	}
	return token, nil
}

// Claims returns the claims of the request's token, all as text, lists like [a b]. It
// returns false if there is no token, if this issuer did not sign it, if it has expired or
// if it is not valid yet. The token is in the Authorization header, with or without the
// word Bearer.
func (i *Issuer) Claims(r *http.Request) (map[string]string, bool) {
	raw := strings.TrimSpace(r.Header.Get("Authorization"))
	if scheme, rest, ok := strings.Cut(raw, " "); ok && strings.EqualFold(scheme, "Bearer") {
		raw = strings.TrimSpace(rest)
	}
	claims := jwt.MapClaims{}
	if _, err := i.parser.ParseWithClaims(raw, claims, func(*jwt.Token) (any, error) { return i.key, nil }); err != nil {
		return nil, false
	}
	texts := make(map[string]string, len(claims))
	for name, value := range claims {
		texts[name] = fmt.Sprint(value) // numbers keep their digits, lists become [a b]
	}
	return texts, true
}
