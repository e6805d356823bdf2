package idem

import (
	"context"
	"crypto/sha256"
	"fmt"
)

// Token returns the idempotency key to send downstream. It depends on the key
// only, inside a [Step] also on the step's name: it is the same on every attempt,
// also after expiry, and different for every tenant, operation, value and step. Its form is a UUID (version 8, RFC 9562),
// which providers accept most widely. Outside an operation it panics: a token
// made up there would protect nothing.
func Token(ctx context.Context) string {
	a := attemptOf(ctx)
	if a == nil {
		panic("idem.Token: the context is not a handler's: pass the context that the handler was given")
	}
	a.signs.Store(true)
	return a.token(ctx)
}

// token is the key's, or that of the step that the context is inside of.
func (a *attempt) token(ctx context.Context) string {
	if name := stepOf(ctx); name != "" {
		// No id has a NUL: it is percent-encoded.
		return tokenOf(a.key.id + "\x00" + name)
	}
	return tokenOf(a.key.id)
}

func tokenOf(id string) string {
	sum := sha256.Sum256([]byte("idem token 1\x00" + id))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80 // version 8: vendor-specific
	u[8] = u[8]&0x3f | 0x80 // variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
