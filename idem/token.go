package idem

import (
	"context"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Token returns the idempotency key to send downstream. It depends on the key only, inside a
// [Step] also on the step's name: it is the same on every attempt, also after expiry, and
// different for every tenant, operation, value and step. Its form is a UUID (version 8, RFC
// 9562), which providers accept most widely. Outside an operation it panics: a token made up
// there would protect nothing.
func Token(ctx context.Context) string {
	a := attemptOf(ctx)
	if a == nil {
		panic("idem.Token: the context is not a handler's: pass the context that the handler was given")
	}
	a.signs.Store(true)
	return a.token(ctx)
}

// token is the key's, or that of the step that the context is inside of.
func (a *attempt) token(ctx context.Context) string { return protocol.Token(a.key.id, stepOf(ctx)) }
