package protocol

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

// Fingerprint is a digest of an operation's input: a version, a colon and a
// base64url SHA-256 without padding, such as "1:47DE…U". Equal inputs have equal
// fingerprints on every machine and in every release that writes this version.
type Fingerprint string

// fingerprintVersion changes with anything that gives some input another digest.
const fingerprintVersion = 1

const fingerprintPrefix = "1:"

// FingerprintOf returns the fingerprint of this release's version with the digest.
func FingerprintOf(sum [sha256.Size]byte) Fingerprint {
	var text [len(fingerprintPrefix) + 43]byte
	return Fingerprint(base64.RawURLEncoding.AppendEncode(append(text[:0], fingerprintPrefix...), sum[:]))
}

// Match is what comparing a call's fingerprint with a stored one says.
type Match uint8

const (
	// MatchUnreadable: one of the two is not a fingerprint. It is the zero value, so
	// that what was not compared fails closed.
	MatchUnreadable Match = iota
	// MatchSame: the input is the one that the record belongs to.
	MatchSame
	// MatchDifferent: the input is another one.
	MatchDifferent
	// MatchNewer: a newer release wrote the stored fingerprint. Nothing can be
	// said about the input; it is not a mismatch.
	MatchNewer
)

// Compare compares a call's fingerprint with the one in its record.
func (f Fingerprint) Compare(stored Fingerprint) Match {
	mine := f.version()
	theirs := mine
	if stored != f {
		theirs = stored.version()
	}
	switch {
	case mine != fingerprintVersion || theirs == 0:
		return MatchUnreadable
	case theirs != mine:
		// Digests of two versions say nothing about each other. There is no version before
		// the first; a release that writes another one has to compute this one too.
		return MatchNewer
	case f == stored:
		return MatchSame
	}
	return MatchDifferent
}

// version returns the version number, 0 if this is not a fingerprint. What
// follows a newer version's colon is not for this release to judge.
func (f Fingerprint) version() int {
	digits, digest, found := strings.Cut(string(f), ":")
	if !found || digest == "" || len(digits) > 6 || strings.Trim(digits, "0123456789") != "" ||
		strings.HasPrefix(digits, "0") {
		return 0
	}
	version, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	if version == fingerprintVersion && !isDigest(digest) {
		return 0
	}
	return version
}

func isDigest(s string) bool {
	var text [43]byte // of 32 bytes, without padding
	var sum [sha256.Size]byte
	if len(s) != len(text) {
		return false
	}
	copy(text[:], s)
	// The decoder skips line ends, hence the check of n.
	n, err := base64.RawURLEncoding.Strict().Decode(sum[:], text[:])
	return err == nil && n == len(sum)
}
