package protocol

import "context"

type insistKey struct{}

// Insist marks a context for [Store.Get]: what is read decides what is recorded of an attempt
// that has run, or of a claim that may have landed. A store that rations its retries does not do
// so then.
func Insist(ctx context.Context) context.Context { return context.WithValue(ctx, insistKey{}, true) }

// Insists reports whether the context is marked by [Insist].
func Insists(ctx context.Context) bool { return ctx.Value(insistKey{}) != nil }
