package idem

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idempotency/idem/internal/codec"
)

// StepSemantics says how often a step's function may run.
//
// Both differ from the steps of a Lambda durable function, whose promises hold for one
// try and whose retry strategy tries again
// (https://docs.aws.amazon.com/lambda/latest/dg/durable-execution-sdk-retries.html).
// Here a promise holds for the operation: for all tries and all attempts.
type StepSemantics uint8

const (
	// AtLeastOnce is the zero value: the function runs until its outcome is recorded.
	// If the process dies between the effect and the record, the function runs once
	// more. Its effect should carry the [Token], which is the step's own.
	AtLeastOnce StepSemantics = iota
	// AtMostOnce records that the step begins before the function runs. After a try that may
	// have taken effect the function never runs again, neither by a retry nor in a later
	// attempt: see [StepInterruptedError]. An error that is neither [Permanent] nor [NotExecuted],
	// and a time-out, park the operation at once, whatever the declaration. If the process
	// dies, a sweep finds the step: see [Watch].
	AtMostOnce
)

// Immediately is the NotFoundFinalAfter of [StepConfig] for a system that knows a request as
// soon as it is sent, or refuses one that arrives late.
const Immediately time.Duration = -1

// StepConfig says how a [Step] runs. The zero value, as nil, means [AtLeastOnce], a
// single try, and nothing to undo.
type StepConfig[T any] struct {
	// Semantics says how often the function may run. The zero value is [AtLeastOnce].
	Semantics StepSemantics
	// Reference is [SetReference]'s, written with the begin mark of an [AtMostOnce] step.
	Reference string
	// Retry lets the step try again within its attempt. The zero value means a single try.
	Retry Retry
	// Compensate undoes the step once it has a result; a step that ends in an error is not
	// undone, although it may have taken effect. When the operation fails, with a [Permanent]
	// error, with a response that is a refusal, or by [Abort], the compensations of its steps
	// run in reverse order, each recorded as a step, before the failure is recorded. From the
	// first one on no further step runs forward and the operation has failed: a later attempt
	// finishes undoing and records that failure, whatever its handler returns. A compensation
	// runs at least once, with a [Token] of its own, and under Retry. An error of it ends the
	// attempt by the operation's declaration; a [Permanent] one parks the operation, and so does
	// a failure of an attempt that has not reached all steps with a compensation.
	Compensate func(ctx context.Context, result T) error
	// Interrupted finds out what became of an [AtMostOnce] step that began in an earlier
	// attempt and left no outcome, such as by asking the provider for the payment with
	// the step's [Token]. It is called instead of the step's function and closes the
	// step: with its result, with a [Permanent] error as the step's outcome, or with a
	// [NotExecuted] error, which says that the step had no effect and lets its function
	// run (while steps are undone it does not). After any other error the step stays
	// open. It is not asked about an error of the step's function: ask the other system
	// inside the function before you return such an error. The operation must be [Repeatable]:
	// of another one the next call after a crash parks the record, and runs nothing.
	Interrupted func(ctx context.Context, began time.Time) (T, error)
	// NotFoundFinalAfter is the time since the step began before which a NotExecuted error of
	// Interrupted is not conclusive: the longest that the step's function runs, plus the
	// longest that a request takes to the other system. A process that died may have sent a
	// request that the system does not know yet. Before that time plus [Options.Margin] a
	// repeatable operation is released, and the next attempt asks again. Required with
	// Interrupted: at least a millisecond, or [Immediately].
	NotFoundFinalAfter time.Duration
}

// Step runs fn and records its result under the operation's claim: a recovery
// point. A later attempt, after a crash or an error, gets the recorded result and does
// not run fn again. fn is tried once in an attempt, unless [StepConfig.Retry] says
// otherwise. The result goes through JSON, so that it is the same live and on replay.
// c may be nil. [StepEffect] is for a function without a result.
//
// Names tell an operation's steps apart: the same in every attempt, and different for
// each step. Steps may run side by side. A [*ConfigError] says that the name is used
// twice, empty, longer than 100 bytes or begins with "idem:", that the config
// contradicts itself, or that the Step is inside another one's function, outside an
// operation, or comes after its handler has returned. Nothing has run or been written
// then.
//
// An error of fn is returned, and its marks end here: see [NotExecuted]. A [Permanent]
// error is the step's outcome: a later attempt gets it as a [*RecordedError]. It does
// not fail the operation: the handler does that, by returning [PermanentStep](err).
// After any other error the step has no outcome; a later attempt runs it again, unless
// AtMostOnce forbids it.
//
// Once fn has succeeded the step is done. A result that cannot be encoded, or is too
// large for the store, gives a [*StepUnavailableError], now and in every later
// attempt. A step for which the record might have no room is not run
// ([protocol.StepRoom]). Each step is one write of the whole record, two if it is
// AtMostOnce, billed by its size: a hundred steps of 1 KB end at some 65 write units
// each.
//
// If a step's write cannot be confirmed, the operation stops: its context ends, every
// further Step fails with the same error, and the attempt ends by the operation's
// declaration, whatever the handler returns. The same holds if the handler returns
// while a step still runs. An AtMostOnce step whose begin mark cannot be confirmed does not
// run.
//
// Where a call fails open ([FailOpen]) steps run and nothing is recorded. An AtMostOnce step does
// not run then: the operation stops with an error that matches [ErrStoreUnavailable].
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

// tried is what a step's function gave that succeeded: an encoded result, or why
// there is none.
type tried struct {
	raw  []byte
	lost error
}

// encoding keeps the function's error apart from its codec's: what succeeded is done,
// whatever becomes of its result.
func encoding[T any](fn func(context.Context) (T, error)) func(context.Context) (tried, error) {
	return func(ctx context.Context) (tried, error) {
		v, err := fn(ctx)
		if err != nil {
			return tried{}, err
		}
		var probe T
		raw, lost := codec.Through(v, &probe)
		if lost != nil {
			raw = nil
		}
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
	o := stepOptions{semantics: c.Semantics, reference: c.Reference, retry: c.Retry, notFoundFinalAfter: c.NotFoundFinalAfter}
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

// StepEffect is [Step] for a function without a result: that it is done is recorded.
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
	s := &StepConfig[struct{}]{Semantics: c.Semantics, Reference: c.Reference, Retry: c.Retry, NotFoundFinalAfter: c.NotFoundFinalAfter}
	if f := c.Compensate; f != nil {
		s.Compensate = func(ctx context.Context, _ struct{}) error { return f(ctx) }
	}
	if f := c.Interrupted; f != nil {
		s.Interrupted = func(ctx context.Context, began time.Time) (struct{}, error) { return struct{}{}, f(ctx, began) }
	}
	return s
}
