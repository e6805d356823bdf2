package secrets

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/idem-go/idempotency/idem/protocol"
)

// minLength is the least that a secret has, in bytes.
const minLength = 16

// Secret is what an operation's values and inputs are digested with: for [idem.Operation].Values.
// Make it with [New]. It is safe for concurrent use.
type Secret struct{ key []byte }

var _ protocol.KeyedDigest = (*Secret)(nil)

// New returns the secret with the key, which has 16 bytes or more. Every use of the operation
// reports one that is shorter or missing.
func New(key []byte) *Secret { return &Secret{slices.Clone(key)} }

// Check implements [protocol.Values].
func (s *Secret) Check() error {
	n := 0
	if s != nil {
		n = len(s.key)
	}
	if n < minLength {
		return &protocol.ConfigError{What: "secret", Problem: fmt.Sprintf("it has %d bytes: use %d random ones or more; "+
			"leave Values out if the operation has none", n, minLength)}
	}
	return nil
}

// Digest implements [protocol.KeyedDigest]: the HMAC-SHA256 (RFC 2104) of the text.
func (s *Secret) Digest(text string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(text))
	h.Sum(sum[:0])
	return sum
}
