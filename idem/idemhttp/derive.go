package idemhttp

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/idem-go/idempotency/idem"
)

// derivedPrefix starts every derived key. Its number grows when the derivation changes,
// since every request then gets a new key.
const derivedPrefix = "d1-"

// DeriveKey makes a key of business parts, such as "order", the order's id and
// "capture". The same parts give the same key, in every process and at any time, so a
// producer need not remember the key across a crash. Parts that differ in content, order
// or number give different keys. Parts are compared byte for byte: normalize their
// spelling first.
//
// The key has 46 characters of the key grammar: "d1-" and a SHA-256 digest. It is not
// secret: a caller who can guess the parts can make it. It does not contain a time: a
// service that refuses old keys also needs the time at which the request was first sent.
//
// No parts, or an empty part, is an error that matches [idem.ErrKeyInvalid]: a missing id
// must not become a key that all callers share.
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
