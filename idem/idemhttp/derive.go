package idemhttp

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/idem-go/idempotency/idem"
)

// derivedPrefix starts every derived key. Its number rises with the way in which
// keys are made, which would make every request a new one.
const derivedPrefix = "d1-"

// DeriveKey makes a key of business parts, such as "order", the order's id and
// "capture": the same parts give the same key, in every process and for ever, so a
// producer that crashed and runs again needs to remember nothing. Different parts,
// their order and number included, give different keys. Parts are taken byte for
// byte: bring them into one spelling before.
//
// The key has 46 characters of the key grammar: "d1-" and a SHA-256 digest. Who
// can guess the parts can make the key, so it is no secret. It carries no time:
// a service that refuses old keys needs the time of the first sending beside it.
//
// No parts, or an empty one, is an error that matches [idem.ErrKeyInvalid]: an id
// that is missing must not become everybody's key.
func DeriveKey(parts ...string) (string, error) {
	if len(parts) == 0 {
		return "", fmt.Errorf("%w: there are no parts to derive it from", idem.ErrKeyInvalid)
	}
	h := sha256.New()
	h.Write([]byte("idem-go derived key 1\x00"))
	length := make([]byte, 0, 8)
	for i, p := range parts {
		if p == "" {
			return "", fmt.Errorf("%w: part %d of %d to derive it from is empty", idem.ErrKeyInvalid, i+1, len(parts))
		}
		// The length before each part keeps ("a", "bc") and ("ab", "c") apart.
		h.Write(binary.BigEndian.AppendUint64(length, uint64(len(p))))
		h.Write([]byte(p))
	}
	return derivedPrefix + base64.RawURLEncoding.EncodeToString(h.Sum(nil)), nil
}
