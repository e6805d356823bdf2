package protocol

import (
	"crypto/sha256"
	"strings"
)

// Values says how the values of an operation's keys are stored: idem.KeepValues or a
// [KeyedDigest]. Nil is a plain digest alone.
type Values interface {
	// Check reports the mistake in it, or nil.
	Check() error
}

// KeyedDigest digests the values of an operation's keys, and its fingerprints, with a secret; package
// secrets has it. It is safe for concurrent use.
type KeyedDigest interface {
	Values
	// Digest is a message authentication code of the text, such as its HMAC-SHA256. It can be made
	// and checked with the secret alone.
	Digest(text string) [sha256.Size]byte
}

// IsCheckID reports whether the id is that of an operation's check record, and of no key. The record
// is Completed, has no expiry and no result, and its Fingerprint tells which secret the operation's
// records are under. Without it a wrong secret is not noticed: nothing may remove it.
func IsCheckID(id string) bool { return strings.HasSuffix(id, "#") }
