package idem

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idempotency/idem/internal/codec"
)

// StepSemantics says how often a step's function may run, in all attempts.
type StepSemantics uint8

const (
	// AtLeastOnce is the zero value: the function runs until its outcome is recorded, once more if
	// the process dies between the effect and the record. Its effect should carry the step's [Token].
	AtLeastOnce StepSemantics = iota
	// AtMostOnce records that the step begins before the function runs. After a try that may have
	// taken effect the function never runs again: see [StepInterruptedError]. An error that is
	// neither [Permanent] nor [NotExecuted], and a time-out, park the operation at once.
	AtMostOnce
)

// Immediately is the NotFoundFinalAfter of [StepConfig] for a system that knows a request as
// soon as it is sent, or refuses one that arrives late.
const Immediately time.Duration = -1

// StepConfig says how a [Step] runs. The zero value, as nil, means [AtLeastOnce], a single try, and nothing to undo.
type StepConfig[T any] struct {
	// Semantics says how often the function may run. The zero value is [AtLeastOnce].
	Semantics StepSemantics
	// Reference is [SetReference]'s, written with the begin mark of an [AtMostOnce] step.
	Reference string
	// Retry lets the step try again within its attempt. The zero value means a single try.
	Retry Retry
	// Compensate undoes the step once it has a result. When the operation fails (a [Permanent] error, a response that
	// is a refusal, [Abort]), the compensations of its steps run in reverse order, each recorded as a step, before
	// the failure is recorded. From the first one on no step runs forward, and later attempts finish undoing. It runs
	// at least once, with a [Token] of its own, under Retry. Its error ends the attempt by the operation's
	// declaration, a [Permanent] one parks the operation.
	Compensate func(ctx context.Context, result T) error
	// Interrupted finds out what became of an [AtMostOnce] step that began in an earlier attempt and
	// left no outcome, for example by asking the provider with the step's [Token]. It is called
	// instead of the step's function, and its result or [Permanent] error is the step's outcome.
	// [NotExecuted] says that the step had no effect: its function runs, unless steps are being
	// undone. After any other error the step stays open. The operation must be [Repeatable].
	Interrupted func(ctx context.Context, began time.Time) (T, error)
	// NotFoundFinalAfter is the time since the step began before which a NotExecuted error of Interrupted is not
	// conclusive: the longest that the function runs plus the longest that a request takes to the other system.
	// Before that, and [Options.Margin], a repeatable operation is released, and the next attempt asks again.
	// Required with Interrupted: at least a millisecond, or [Immediately].
	NotFoundFinalAfter time.Duration
}

// Step runs fn and records its result under the operation's claim. A later attempt gets the
// recorded result and does not run fn again. The result goes through JSON, so that it is the same
// live and on replay. c may be nil. Steps may run side by side.
//
// Names tell an operation's steps apart: the same in every attempt, different for each step, at most 100 bytes, and not
// beginning with "idem:". A [*ConfigError] says that the name or c is wrong, or that the Step is inside another one's
// function, outside an operation, or comes after its handler has returned. Nothing has run or been written then.
//
// An error of fn is returned, and its marks end here. A [Permanent] error is the step's outcome: a later attempt gets
// it as a [*RecordedError]. It does not fail the operation: the handler does, by returning [PermanentStep](err).
// After any other error the step has no outcome; a later attempt runs it again, unless AtMostOnce forbids it. A
// result that cannot be encoded, or is too large for the store, gives a [*StepUnavailableError], now and later. A
// step for which the record might have no room is not run ([protocol.StepRoom]).
//
// Each step is one write of the whole record, two if it is AtMostOnce, billed by its size. If a write
// cannot be confirmed, or the handler returns while a step runs, the operation stops: its context
// ends, every further Step fails, and the attempt ends by the operation's declaration, whatever the
// handler returns. Where a call fails open ([FailOpen]) nothing is recorded, and an AtMostOnce step
// stops the operation with an error that matches [ErrStoreUnavailable].
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error), c *StepConfig[T]) (T, error) {
	var out T
	s, err := newStep(ctx, name, reflect.TypeFor[T](), c.options())
	if err != nil {
		return out, err
	}
	if fn == nil {
		return out, s.bad("the function is nil")
	}
	read := func(raw []byte) error {
		return codec.Decode(fmt.Sprintf("the result recorded of step %q", name), raw, &out)
	}
	if err = s.do(encoding(fn), read); err != nil {
		return *new(T), stepBorder(err)
	}
	return out, nil
}

// tried is what a step's function gave that succeeded: an encoded result, or why there is none.
type tried struct {
	raw  []byte
	lost error
}

// encoding keeps the function's error apart from its codec's: what succeeded is done, whatever becomes of its result.
func encoding[T any](fn func(context.Context) (T, error)) func(context.Context) (tried, error) {
	return func(ctx context.Context) (tried, error) {
		v, err := fn(ctx)
		if err != nil {
			return tried{}, err
		}
		var probe T
		raw, lost := codec.Through(v, &probe)
		return tried{raw, lost}, nil
	}
}

// stepOptions is a step's config without the type of its result, which is encoded.
type stepOptions struct {
	semantics          StepSemantics
	reference          string
	retry              Retry
	compensate         func(context.Context, []byte) error
	interrupted        func(context.Context, time.Time) (tried, error)
	notFoundFinalAfter time.Duration
}

func (c *StepConfig[T]) options() stepOptions {
	if c == nil {
		return stepOptions{}
	}
	o := stepOptions{semantics: c.Semantics, reference: c.Reference, retry: c.Retry,
		notFoundFinalAfter: c.NotFoundFinalAfter}
	if f := c.Compensate; f != nil {
		o.compensate = func(ctx context.Context, raw []byte) error {
			var v T
			if err := codec.Decode("the step's result", raw, &v); err != nil {
				return err
			}
			return f(ctx, v)
		}
	}
	if f := c.Interrupted; f != nil {
		o.interrupted = func(ctx context.Context, began time.Time) (tried, error) {
			return encoding(func(ctx context.Context) (T, error) { return f(ctx, began) })(ctx)
		}
	}
	return o
}

// StepEffect is [Step] for a function without a result.
func StepEffect(ctx context.Context, name string, fn func(context.Context) error, c *EffectConfig) error {
	var run func(context.Context) (struct{}, error)
	if fn != nil {
		run = func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) }
	}
	_, err := Step(ctx, name, run, c.step())
	return err
}

// EffectConfig says how a [StepEffect] runs, as [StepConfig] does for a [Step].
type EffectConfig struct {
	// Semantics, Reference and Retry: see [StepConfig].
	Semantics StepSemantics
	Reference string
	Retry     Retry
	// Compensate undoes the step once it is done: see [StepConfig].
	Compensate func(ctx context.Context) error
	// Interrupted finds out what became of an [AtMostOnce] step that began in an earlier
	// attempt, and returns nil if it is done. For NotFoundFinalAfter too see [StepConfig].
	Interrupted        func(ctx context.Context, began time.Time) error
	NotFoundFinalAfter time.Duration
}

// step is the same for a step whose result is empty.
func (c *EffectConfig) step() *StepConfig[struct{}] {
	if c == nil {
		return nil
	}
	s := &StepConfig[struct{}]{Semantics: c.Semantics, Reference: c.Reference, Retry: c.Retry,
		NotFoundFinalAfter: c.NotFoundFinalAfter}
	if f := c.Compensate; f != nil {
		s.Compensate = func(ctx context.Context, _ struct{}) error { return f(ctx) }
	}
	if f := c.Interrupted; f != nil {
		s.Interrupted = func(ctx context.Context, began time.Time) (struct{}, error) { return struct{}{}, f(ctx, began) }
	}
	return s
}
