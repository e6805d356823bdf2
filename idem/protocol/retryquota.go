package protocol

import "context"

type retryQuotaKey struct{}

// WithoutRetryQuota marks a context for [Store.Get]: what is read decides what is recorded of an
// attempt that has run, or of a claim that may have landed. A store that rations its retries does
// not do so then.
func WithoutRetryQuota(ctx context.Context) context.Context {
	return context.WithValue(ctx, retryQuotaKey{}, true)
}

// IgnoresRetryQuota reports whether the context is marked by [WithoutRetryQuota].
func IgnoresRetryQuota(ctx context.Context) bool { return ctx.Value(retryQuotaKey{}) != nil }
