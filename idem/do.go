package idem

import (
	"context"
	"reflect"

	"github.com/idem-go/idempotency/idem/internal/codec"
)

// Do runs fn under the key's claim, which one call has at a time. Later calls with the same key and
// input get the recorded outcome while it is kept.
//
// The input's fingerprint is taken before fn runs: of raw JSON (json.RawMessage) by its meaning, of []byte and string
// as they are, of everything else as its JSON. The result is recorded as JSON, and the call that ran fn gets the
// decoded JSON too. A type that JSON sees nothing of, such as an [io.Reader], is refused.
//
// fn's error is returned as it is, and a panic goes on. After either the next call runs fn again if the operation is
// [Repeatable], else the record is [Unknown]; [NotExecuted] and [Permanent] mark other errors. A call can also get an
// error of this package, such as [ErrInFlight]. Do is safe for concurrent use and returns when fn has.
func Do[In, Out any](ctx context.Context, e *Engine, key Key, in In,
	fn func(context.Context, In) (Out, error)) (Out, error) {
	r, err := Run(ctx, e, key, in, fn)
	return r.Value, err
}

// Run is [Do], and returns the [Outcome] too.
func Run[In, Out any](ctx context.Context, e *Engine, key Key, in In,
	fn func(context.Context, In) (Out, error)) (Result[Out], error) {
	var res Result[Out]
	if e == nil {
		return res, configError("call", "the engine is nil: make one with idem.New")
	}
	if fn == nil {
		return res, configError("call", "the handler is nil")
	}
	err := codec.CheckResult(reflect.TypeFor[Out]())
	if key.op.Shadow {
		return observe(ctx, e, key, in, fn, err)
	}
	if err != nil {
		return res, err
	}
	fp, err := codec.Fingerprint(&in)
	if err != nil {
		return res, err
	}
	classifies := key.op.Classify != nil
	res.Outcome, err = e.Execute(ctx, Call{Key: key, Fingerprint: fp, Run: func(ctx context.Context) Answer {
		v, err := fn(ctx, in)
		if err != nil && !classifies {
			return Answer{Err: err, Value: v}
		}
		ans := Answer{Value: v, Err: err}
		ans.Body, ans.Omitted = codec.Through(v, &res.Value)
		return ans
	}})
	if err != nil {
		res.Value = *new(Out)
		return res, err
	}
	if res.Outcome.Executed {
		return res, nil
	}
	res.Value = *new(Out) // of an attempt that lost its claim, if any
	return res, codec.DecodeResult(res.Outcome.Body, &res.Value)
}

// DoEffect is [Do] for a handler without a result.
func DoEffect[In any](ctx context.Context, e *Engine, key Key, in In, fn func(context.Context, In) error) error {
	var run func(context.Context, In) (struct{}, error)
	if fn != nil {
		run = func(ctx context.Context, in In) (struct{}, error) { return struct{}{}, fn(ctx, in) }
	}
	_, err := Do(ctx, e, key, in, run)
	return err
}

// Result is what [Run] returns.
type Result[Out any] struct {
	// Value is the handler's result, decoded from what is recorded.
	Value Out
	// Outcome says whether it was replayed, which attempt made it, and until when it is kept.
	Outcome Outcome
}

// CheckResultType reports, as a [*ConfigError], a type with a part that encoding/json cannot encode,
// such as a channel, or sees nothing of, such as a struct without exported fields. Types with methods
// for encoding pass, and so do interfaces.
func CheckResultType(t reflect.Type) error { return codec.CheckResult(t) }
