package protocol

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// NewID returns a random identifier of 127 bits. It begins with a letter: a command line takes
// what begins with "-" for a flag.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// ParseRecordID takes a record's id apart: the tenant, empty for none, the operation and the
// digest of the key's value. What is no record's id has no operation.
func ParseRecordID(id string) (tenant, operation, digest string) {
	parts := strings.Split(id, "#")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return "", "", ""
	}
	tenant, terr := url.PathUnescape(parts[0])
	operation, oerr := url.PathUnescape(parts[1])
	if terr != nil || oerr != nil {
		return "", "", ""
	}
	return tenant, operation, parts[2]
}

// shadowSuffix ends the ids of records of shadow: no call outside of it finds them.
const shadowSuffix = "#shadow"

// ShadowID returns the id of the record of calls in shadow with the key whose record has the id.
func ShadowID(id string) string { return id + shadowSuffix }

// LiveID returns the id of the key's record in live mode, and whether the id is of its record of
// shadow.
func LiveID(id string) (live string, shadow bool) { return strings.CutSuffix(id, shadowSuffix) }

// UnobservedError says why it is not known what the live mode would have answered to a call in
// shadow, such as a body that is not read ahead of the handler. The call is reported as not observed,
// and not as refused.
type UnobservedError struct{ Err error }

func (e *UnobservedError) Error() string { return e.Err.Error() }

func (e *UnobservedError) Unwrap() error { return e.Err }

// Token is the idempotency key that the handler of the record with the id sends
// downstream, and that of its step of that name if it is not empty; see idem.Token. In shadow
// the handler has the token of the live mode.
func Token(id, step string) string {
	id, _ = LiveID(id)
	if step != "" {
		id += "\x00" + step // no id has a NUL: it is percent-encoded
	}
	sum := sha256.Sum256([]byte("idem token 1\x00" + id))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80 // version 8: vendor-specific
	u[8] = u[8]&0x3f | 0x80 // variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// TenantGroup is the message group of the tenant of the record with the id, by which a queue
// is fair to tenants; it is empty if the record has no tenant. It is the SHA-256, in
// hexadecimal, of the tenant as it is written in the id, percent-encoded. Any tenant fits
// therefore, and none is named: a queue's encryption leaves groups readable, and a message
// may reach a reader who does not know the tenant. A reader who knows a tenant finds its group.
func TenantGroup(id string) string {
	tenant, _, _ := strings.Cut(id, "#")
	if tenant == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(sum[:])
}
