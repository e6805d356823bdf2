package secrets

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/idem-go/idempotency/idem/protocol"
)

// minLength is the least that a secret has, in bytes.
const minLength = 16

// Secrets are what an operation's values and inputs are digested with: for
// [idem.Operation].Secrets. Make them with [New], [AfterPlain] or [StillPlain]; a mistake in
// them comes out where the operation is used. They are safe for concurrent use.
type Secrets struct {
	known  []secret // the first is current
	checks string   // of known, in their order
	was    bool     // the operation has had records without a secret: plain is known
	err    error
}

var _ protocol.Digester = (*Secrets)(nil)

// New is for an operation of which no record was ever made without a secret. Records are made
// under the current secret. The others are former ones, or ones that other processes may use
// already; their order has no meaning.
func New(current []byte, others ...[]byte) *Secrets {
	return (&Secrets{}).with(append([][]byte{current}, others...)).done()
}

// AfterPlain is [New] for an operation that has had records without a secret, and may have some.
func AfterPlain(current []byte, others ...[]byte) *Secrets {
	s := (&Secrets{was: true}).with(append([][]byte{current}, others...))
	s.known = append(s.known, plain)
	return s.done()
}

// StillPlain is for an operation whose records are made without a secret, in processes that find
// the records of others that have one already.
func StillPlain(next ...[]byte) *Secrets {
	return (&Secrets{was: true, known: []secret{plain}}).with(next).done()
}

func (s *Secrets) with(keys [][]byte) *Secrets {
	for i, key := range keys {
		if len(key) < minLength {
			s.err = &protocol.ConfigError{What: "secrets", Problem: fmt.Sprintf("secret %d of %d has %d bytes: use %d random ones or more; "+
				"one that is missing does not mean none", i+1, len(keys), len(key), minLength)}
			return s
		}
		k := of(key)
		if slices.ContainsFunc(s.known, func(o secret) bool { return o.check == k.check }) {
			s.err = &protocol.ConfigError{What: "secrets", Problem: fmt.Sprintf("secret %d of %d is there twice: leave one out", i+1, len(keys))}
			return s
		}
		s.known = append(s.known, k)
	}
	return s
}

func (s *Secrets) done() *Secrets {
	for i := range s.known {
		s.checks += s.known[i].check + " "
	}
	return s
}

// Check implements [protocol.Digester].
func (s *Secrets) Check() error {
	if s == nil || s.err == nil && len(s.known) == 0 {
		return &protocol.ConfigError{What: "secrets", Problem: "there are none: make them with secrets.New, or leave Secrets out"}
	}
	return s.err
}

// Name implements [protocol.Digester].
func (s *Secrets) Name(start, value string) protocol.Name {
	return &name{secrets: s, start: start, value: value}
}

// secret is one of them, or that there is none.
type secret struct {
	key   []byte // nil for plain
	check string
}

// plain stands for records without a secret.
var plain = secret{check: forPlain}

// forPlain is the check value that stands in a register for records without a secret.
const forPlain = "plain"

// What a secret digests, told apart by how it begins.
const (
	ofCheck = "idem check\x00"
	ofValue = "idem value\x00"
	ofInput = "idem input\x00"
)

const (
	// checkSize is how much of a digest tells secrets apart in a register, in bytes: no two of an
	// operation have the same.
	checkSize = 12
	// tagSize is how much of the check value is at the beginning of each id's digest: a scan finds
	// by it what is under a secret.
	tagSize = 4
)

func of(key []byte) secret {
	k := secret{key: slices.Clone(key)}
	sum := k.digest(ofCheck)
	k.check = base64.RawURLEncoding.EncodeToString(sum[:checkSize])
	return k
}

// digest is the HMAC-SHA256 (RFC 2104) of a text, under the secret.
func (k *secret) digest(parts ...string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, k.key)
	for _, s := range parts {
		h.Write([]byte(s))
	}
	h.Sum(sum[:0])
	return sum
}

// id is that of the record under the secret. It has the form of any other id.
func (k *secret) id(start, value string) string {
	sum := sha256.Sum256([]byte(value))
	if k.key != nil {
		// 28 bytes of the digest are as hard to meet twice as those of SHA-224.
		hidden := k.digest(ofValue, start, "\x00", value)
		copy(sum[copy(sum[:], tag(k.check)):], hidden[:])
	}
	return start + base64.RawURLEncoding.EncodeToString(sum[:])
}

// fingerprint is what the record with the id keeps of the input's: nobody can guess the input
// from it, nor see that two records have the same one.
func (k *secret) fingerprint(id string) func(protocol.Fingerprint) protocol.Fingerprint {
	if k.key == nil {
		return func(of protocol.Fingerprint) protocol.Fingerprint { return of }
	}
	return func(of protocol.Fingerprint) protocol.Fingerprint {
		return protocol.FingerprintOf(k.digest(ofInput, id, "\x00", string(of)))
	}
}

// tag is how the digests of ids start that are under the secret with the check value; nil for
// plain ones.
func tag(check string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(check)
	if check == forPlain || err != nil || len(b) < tagSize {
		return nil
	}
	return b[:tagSize]
}
