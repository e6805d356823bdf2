package protocol

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

// Fingerprint is a digest of an operation's input: a version, a colon and a
// base64url SHA-256 without padding, such as "1:47DE…U". Equal inputs have equal
// fingerprints on every machine and in every release that makes this version.
//
// That of a call may have the digests of several versions, with spaces between them. It is compared with
// a record's by the digest of the record's version. A record has one: the call's first ([Fingerprint.Recorded]).
// So a release that makes a new version is compared with records of before, and decides by the order which
// version it writes.
type Fingerprint string

// FingerprintVersion is the newest version that this release makes. A new one is due with anything that
// gives some input another digest.
const FingerprintVersion = 1

// FingerprintOf returns the fingerprint of a version with the digest.
func FingerprintOf(version int, sum [sha256.Size]byte) Fingerprint {
	var text [8 + 43]byte
	start := append(strconv.AppendInt(text[:0], int64(version), 10), ':')
	return Fingerprint(base64.RawURLEncoding.AppendEncode(start, sum[:]))
}

// Recorded is what a record keeps of a call's fingerprint: the digest of one version.
func (f Fingerprint) Recorded() Fingerprint {
	first, _, _ := f.cut()
	return first
}

// Digested returns the fingerprint with other digests: those that a function makes of the fingerprint of
// each version.
func (f Fingerprint) Digested(sum func(Fingerprint) [sha256.Size]byte) Fingerprint {
	first, rest, more := f.cut()
	digested := FingerprintOf(first.version(), sum(first))
	if more {
		digested += " " + rest.Digested(sum)
	}
	return digested
}

// cut returns the fingerprint of the first version, and those behind it.
func (f Fingerprint) cut() (first, rest Fingerprint, more bool) {
	one, others, more := strings.Cut(string(f), " ")
	return Fingerprint(one), Fingerprint(others), more
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
	// MatchNewer: the stored fingerprint is of a version that the call does not have, such as
	// that of a newer release. Nothing can be said about the input; it is not a mismatch.
	MatchNewer
)

// Compare compares a call's fingerprint with the one in its record.
func (f Fingerprint) Compare(stored Fingerprint) Match {
	theirs := stored.version()
	if theirs == 0 {
		return MatchUnreadable
	}
	match, known := MatchNewer, false
	for rest, more := f, true; more; {
		var mine Fingerprint
		mine, rest, more = rest.cut()
		version := theirs
		if mine != stored {
			version = mine.version()
		}
		known = known || 0 < version && version <= FingerprintVersion
		switch {
		case version == 0:
			return MatchUnreadable
		case version != theirs:
			// Digests of two versions say nothing about each other.
		case mine == stored:
			match = MatchSame
		default:
			match = MatchDifferent
		}
	}
	if !known {
		return MatchUnreadable // this release has not made it
	}
	return match
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
	if version <= FingerprintVersion && !isDigest(digest) {
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
