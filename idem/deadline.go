package idem

import (
	"context"
	"time"
)

type killTimeKey struct{}

// WithKillTime tells the engine when the process will be killed or frozen, as Lambda's
// deadline says: the lease ends then and needs no renewal before. The wrappers of package
// idemlambda call it. Without it the context's own deadline counts inside Lambda, and
// elsewhere the lease is renewed while the handler runs. A context that has a kill time
// is returned as it is.
//
// A handler that still runs when its kill time has passed was not killed: its lease is
// renewed from then on until it returns. So an earlier deadline, such as a middleware
// makes, ends the handler's context and no claim. On Lambda Managed Instances a time-out
// kills nothing
// (https://docs.aws.amazon.com/lambda/latest/dg/lambda-managed-instances-execution-environment.html):
// the lease is renewed there from the start.
func WithKillTime(ctx context.Context, t time.Time) context.Context {
	if _, ok := ctx.Value(killTimeKey{}).(time.Time); ok {
		return ctx
	}
	return context.WithValue(ctx, killTimeKey{}, t)
}

func (e *Engine) killTime(ctx context.Context) (time.Time, bool) {
	if t, ok := ctx.Value(killTimeKey{}).(time.Time); ok {
		return t, true
	}
	if e.inLambda {
		return ctx.Deadline()
	}
	return time.Time{}, false
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
