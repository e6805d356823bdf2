package protocol

import (
	"crypto/sha256"
	"fmt"
)

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
