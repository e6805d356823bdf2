package idem

import (
	"context"
	"os"
	"strconv"
	"time"
)

type killTimeKey struct{}

// WithKillTime tells the engine when the process will be killed or frozen, as
// Lambda's deadline says: the lease ends then and needs no renewal before. The wrappers
// of package idemlambda call it with the deadline of the context that they are given;
// without it, inside Lambda, the context's own deadline counts, and elsewhere a lease
// that is renewed while the handler runs. The first time that was set counts: a context
// that has one is returned as it is.
//
// A context with an earlier deadline than the invocation's, such as a middleware makes,
// may thus be taken for it. That ends the handler's context early, but no claim: a
// handler that still runs when its kill time has passed was not killed, and its lease
// is renewed from then on until it returns.
//
// On Lambda Managed Instances nothing is killed or frozen: Lambda answers the caller
// with a time-out, and the handler runs on
// (https://docs.aws.amazon.com/lambda/latest/dg/lambda-managed-instances-execution-environment.html).
// There the time ends the handler's context, as everywhere, but not the lease, which
// is renewed until the handler returns: its twins find it in flight for so long, and
// its late outcome is recorded.
func WithKillTime(ctx context.Context, t time.Time) context.Context {
	if _, ok := ctx.Value(killTimeKey{}).(time.Time); ok {
		return ctx
	}
	return context.WithValue(ctx, killTimeKey{}, t)
}

// managedInstance reports whether the process is a Lambda Managed Instance. Such a one may
// be limited to one invocation at a time; several tell it for certain.
func managedInstance() bool {
	n, err := strconv.Atoi(os.Getenv("AWS_LAMBDA_MAX_CONCURRENCY"))
	return os.Getenv("AWS_LAMBDA_INITIALIZATION_TYPE") == "lambda-managed-instances" || err == nil && n > 1
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
