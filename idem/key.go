package idem

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idempotency/idem/internal/canonical"
	"github.com/idem-go/idempotency/idem/protocol"
)

// SingleTenant is the tenant of all keys in a service without tenants. It must be given: a
// forgotten tenant is an error.
const SingleTenant = "\x00"

// What a secret digests, kept apart by how it begins.
const (
	ofCheck = "idem check\x00"
	ofValue = "idem value\x00"
	ofInput = "idem input\x00"
)

// Key names one record: tenant, operation and the caller's value. Make it with [Operation.Key]. A
// mistake in its parts comes out where the key is used.
type Key struct {
	op     Operation
	tenant string
	value  string
	id     string
	keyed  protocol.KeyedDigest // that the id was made with, if any
	err    error
}

// Key returns the key of the caller's value under the tenant, or [SingleTenant]. They must not be
// empty, and have at most 64 and 1,024 bytes. Join several parts with [JoinValues].
func (o Operation) Key(tenant, value string) Key {
	k := Key{op: o, tenant: tenant, value: value}
	if k.err = o.Check(); k.err != nil {
		return k
	}
	switch {
	case tenant == "":
		k.err = keyError("the tenant is empty: pass the caller's tenant, or idem.SingleTenant if the service has none")
	case len(tenant) > maxTenant:
		k.err = keyError("the tenant has %d bytes: use at most %d", len(tenant), maxTenant)
	case value == "":
		k.err = keyError("the value is empty: an absent value must not become everybody's key")
	case len(value) > maxValue:
		k.err = keyError("the value has %d bytes: use at most %d, or a digest of your own", len(value), maxValue)
	default:
		k.keyed, _ = o.Values.(protocol.KeyedDigest)
		k.id = recordID(tenant, o.Name, k.digestOf(value))
	}
	return k
}

// digestOf is the digest of a value in its record's id.
func (k *Key) digestOf(value string) [sha256.Size]byte {
	if k.keyed == nil {
		return sha256.Sum256([]byte(value))
	}
	return k.keyed.Digest(ofValue + startOf(k.tenant, k.op.Name) + "\x00" + value)
}

// fingerprint is what the key's record has of the input's fingerprint. Under a secret two records of
// the same input have different ones.
func (k *Key) fingerprint(of Fingerprint) Fingerprint {
	if k.keyed == nil {
		return of
	}
	return of.Digested(func(one Fingerprint) [sha256.Size]byte {
		return k.keyed.Digest(ofInput + k.id + "\x00" + string(one))
	})
}

// KeyFromID returns the key of a record from its [Key.ID]. It claims a record that is there, or nothing.
func (o Operation) KeyFromID(id string) Key {
	tenant, name, digest := protocol.ParseRecordID(id)
	if tenant == "" {
		tenant = SingleTenant
	}
	k := Key{op: o, tenant: tenant, id: id, err: o.Check()}
	switch raw, err := base64.RawURLEncoding.DecodeString(digest); {
	case k.err != nil:
	case err != nil || len(raw) != sha256.Size:
		k.err = keyError("%q is no record's id", id)
	case name != o.Name:
		k.err = keyError("the record's id names operation %q, and this is %q", name, o.Name)
	}
	return k
}

// ID is the record's identity: tenant and operation percent-encoded, then the digest of the value,
// joined with '#'. It is empty if the key has a mistake.
func (k Key) ID() string { return k.id }

// Operation returns the operation that the key belongs to.
func (k Key) Operation() Operation { return k.op }

// Tenant returns the tenant as given.
func (k Key) Tenant() string { return k.tenant }

// Err reports the mistake in the key's parts or its operation, or nil.
func (k Key) Err() error {
	if k.err == nil && k.id == "" {
		return keyError("the key is empty: make it with Operation.Key")
	}
	return k.err
}

// JoinValues makes one value of several parts such that different parts never give the same value: each is
// percent-encoded, then joined with '/'. An empty part makes the whole value empty, which [Operation.Key] refuses.
func JoinValues(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if p == "" {
			return ""
		}
		if i > 0 {
			b.WriteByte('/')
		}
		escapeTo(&b, p)
	}
	return b.String()
}

func keyError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrKeyInvalid, fmt.Sprintf(format, args...))
}

// startOf is what the ids of the tenant's records of the operation start with.
func startOf(tenant, operation string) string {
	id := recordID(tenant, operation, [sha256.Size]byte{})
	return id[:strings.LastIndexByte(id, '#')+1]
}

func recordID(tenant, operation string, sum [sha256.Size]byte) string {
	var b strings.Builder
	b.Grow(len(tenant) + len(operation) + 2 + 43)
	if tenant != SingleTenant {
		escapeTo(&b, tenant)
	}
	b.WriteByte('#')
	escapeTo(&b, operation)
	b.WriteByte('#')
	var digest [43]byte
	base64.RawURLEncoding.Encode(digest[:], sum[:])
	b.Write(digest[:])
	return b.String()
}

// escapeTo percent-encodes everything but RFC 3986's unreserved characters, so
// that neither a separator nor a wildcard of an IAM policy gets through.
func escapeTo(b *strings.Builder, s string) {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
}

// CheckPointer reports what is no JSON pointer (RFC 6901).
func CheckPointer(pointer string) error { return canonical.CheckPointer(pointer) }

// ValuesAt returns the parts of a key to which JSON pointers lead in a JSON text, for
// wrappers that read keys. A part is a string that is not empty, or a plain integer: 42 and "42" are
// one part. Anything else gives an error that matches [ErrKeyInvalid], and so does a member on the way
// that is there twice, or differs from another one in its case alone. Errors call the text by noun.
func ValuesAt(text []byte, noun string, pointers ...string) ([]string, error) {
	values, err := canonical.Values(text, noun, pointers...)
	if _, ok := errors.AsType[*canonical.ValueError](err); err != nil && !ok && len(pointers) > 0 {
		err = fmt.Errorf("the value at %q of the %s cannot be read: %w", pointers[0], noun, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyInvalid, err)
	}
	return values, nil
}
