package protocol

import (
	"crypto/rand"
	"encoding/base64"
)

// NewID returns a random identifier of 128 bits.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
