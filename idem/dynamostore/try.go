package dynamostore

import (
	"context"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
)

// try is the context of one try, which knows how far the SDK came with it: whether
// a failure may have left something behind does not follow from the error, since
// credentials are fetched over the network too.
type try struct {
	context.Context
	begun, sent atomic.Bool
}

type tryKey struct{}

func (t *try) Value(key any) any {
	if key == (tryKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// unsent reports whether the SDK is known to have sent nothing. With a client that
// is not the SDK's that is never known.
func (t *try) unsent() bool { return t.begun.Load() && !t.sent.Load() }

// unsent is why a request could not be sent: it was refused before, or there were no
// credentials or no endpoint for it.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

// observe makes the SDK tell each try how far it comes.
func observe(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
		if err := s.Initialize.Add(tryBegun, middleware.Before); err != nil {
			return err
		}
		return s.Deserialize.Add(trySent, middleware.After) // the last before the wire
	})
}

var (
	tryBegun = middleware.InitializeMiddlewareFunc("IdemTryBegun",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			if t, ok := ctx.Value(tryKey{}).(*try); ok {
				t.begun.Store(true)
			}
			return next.HandleInitialize(ctx, in)
		})
	trySent = middleware.DeserializeMiddlewareFunc("IdemTrySent",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			if t, ok := ctx.Value(tryKey{}).(*try); ok {
				t.sent.Store(true)
			}
			return next.HandleDeserialize(ctx, in)
		})
)
