package idem

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// StepSemantics says how often a step's function may run. The words are those of
// the AWS Durable Execution SDK where it has them.
type StepSemantics uint8

const (
	// AtLeastOnce is the zero value: the function runs until its outcome is
	// recorded, so also once more if the process dies between its effect and the
	// record. Its effect should carry the [Token], which is the step's own.
	AtLeastOnce StepSemantics = iota
	// AtMostOnce records that the step begins before the function runs. A step that
	// began and left no outcome is never run again: see [StepInterruptedError]. An
	// error of the function that is neither [Permanent] nor [NotExecuted] parks the
	// operation at once, a time-out too: [WithInterrupted] is asked only by an attempt
	// that follows a crash. Ask the other system inside the function before you return
	// such an error.
	AtMostOnce
)

// Step runs fn and records its result under the operation's claim: a recovery
// point. An attempt that follows, after a crash or an error, gets the recorded
// result and does not run fn again. The result goes through JSON, so that it is the
// same live and on replay; it may be of any size that an operation's may be.
//
// Names tell an operation's steps apart. They must be the same in every attempt,
// and different in each: a name asked for twice is a [*ConfigError], and so are a
// name that is empty, longer than 100 bytes or begins with "idem:", a Step inside
// another one's function, and a Step outside an operation or after its handler
// has returned. Steps may run side by side.
//
// An error of fn is returned, and its marks end here: see [NotExecuted]. A [Permanent]
// error is the step's outcome: it is recorded, and a later attempt gets it as a
// [*RecordedError]. That the operation has failed with it is the handler's to say:
// it returns [PermanentStep](err). After any other error the step
// has no outcome; a later attempt runs it again, unless it is AtMostOnce.
//
// Once fn has succeeded the step is done. A result that cannot be encoded, or is too
// large for the store, gives a [*StepUnavailableError], now and in every later
// attempt. A step for which the record might have no room is not run: see [protocol.StepRoom],
// which also says how many there may be. Each step is one write of the whole record,
// two if it is AtMostOnce, billed by its size: a hundred steps of 1 KB end at some 65
// write units each.
//
// A step whose record cannot be shown to have been written stops the operation:
// its context ends, every further Step fails with the same error, and it ends by
// the operation's declaration, whatever the handler returns. So does an operation
// whose handler returns while a step still runs. An AtMostOnce step whose begin mark
// cannot be shown to have been written does not run, and the mark is taken back. A
// step that ends after its attempt was parked at the deadline is recorded as long as
// nobody has settled the question.
//
// Where the operation runs without a claim ([FailOpen]) there is nothing to record
// under: steps just run, their compensations too, and AtMostOnce steps are refused
// with [ErrStoreUnavailable].
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error), opts ...StepOption) (T, error) {
	var out T
	s, err := newStep(ctx, name, reflect.TypeFor[T](), opts)
	if err != nil {
		return out, err
	}
	if fn == nil {
		return out, s.bad("the function is nil")
	}
	raw, err := s.do(encoding(fn))
	if err != nil {
		return out, stepBorder(err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return *new(T), s.halt(fmt.Errorf("%w: the result recorded of step %q does not fit %T: %w", ErrRecordUnreadable, name, out, err))
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
		raw, lost := throughCodec(v, &probe)
		if lost != nil {
			raw = nil
		}
		return tried{raw, lost}, nil
	}
}

// StepOption is an option of a [Step].
type StepOption interface{ apply(*stepOptions) }

type stepOptions struct {
	semantics   StepSemantics
	retry       RetryConfig
	compensate  *typedStep[func(context.Context, []byte) error]
	interrupted *typedStep[func(context.Context, time.Time) (tried, error)]
	minAge      time.Duration // of what was interrupted, before its absence is proof
}

// typedStep is a function of an option that must fit the step's result.
type typedStep[F any] struct {
	result reflect.Type
	fn     F
}

type stepOption func(*stepOptions)

func (f stepOption) apply(o *stepOptions) { f(o) }

// WithSemantics sets how often the function may run. The default is [AtLeastOnce].
func WithSemantics(s StepSemantics) StepOption {
	return stepOption(func(o *stepOptions) { o.semantics = s })
}

// WithRetry lets a step try again within its attempt, see [RetryConfig]. The
// default is a single try.
func WithRetry(c RetryConfig) StepOption {
	return stepOption(func(o *stepOptions) { o.retry = c.withDefaults() })
}

// WithCompensation says how to undo the step once it has a result. When the
// operation fails for good, with a [Permanent] error, with a response that is a
// refusal, or by [Compensate], the compensations of its steps run in reverse order,
// each recorded as a step, before the failure is: a crash between two of them resumes
// with the next one, and no further step runs forward. From the first one on the
// operation has failed: a later attempt finishes undoing and records that failure,
// whatever its handler returns. fn runs at least once, with a [Token] of its own, and
// under the step's [RetryConfig]. An error of fn ends the attempt by the operation's
// declaration; a permanent one parks it: somebody must look.
//
// A later attempt must come by the same steps to know their compensations. One that
// does not come by a step with a compensation, and fails, is parked.
func WithCompensation[T any](fn func(ctx context.Context, result T) error) StepOption {
	return stepOption(func(o *stepOptions) {
		o.compensate = &typedStep[func(context.Context, []byte) error]{reflect.TypeFor[T](), nil}
		if fn == nil {
			return
		}
		o.compensate.fn = func(ctx context.Context, raw []byte) error {
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				return fmt.Errorf("%w: the step's result does not fit %T: %w", ErrRecordUnreadable, v, err)
			}
			return fn(ctx, v)
		}
	})
}

// WithInterrupted says how to find out what became of an AtMostOnce step that began
// and left no outcome, such as asking the provider for the payment with the step's
// [Token]. fn is called instead of the step's function, with the time at which the
// step began, and settles the step: with its result, with a [Permanent] error as the
// step's outcome, or with a [NotExecuted] error, which says that the step surely had
// no effect and lets its function run. After any other error the step stays open.
//
// A process that died may have left a request on its way, of which the provider does
// not know yet. So absence is proof only once the provider's longest delay is over:
// a NotExecuted error does not count until minAge, and the engine's margin for the
// clocks, have passed since the step began. The function may send its request long
// after that, so minAge is the provider's longest delay plus the longest that the
// function runs. Until then the step stays open, and a repeatable operation is
// released, so that the next attempt asks again ([StepInterruptedError].AskAgain).
// Zero is for providers that refuse what comes late, or know it at once.
//
// Only an attempt that follows a crash asks it, also if the operation is being undone:
// the step is settled, not run, and then undone in its turn. An error of the step's
// function that is neither Permanent nor NotExecuted parks the operation at once, a
// time-out too: ask the other system inside the function before you return such an
// error.
func WithInterrupted[T any](minAge time.Duration, fn func(ctx context.Context, began time.Time) (T, error)) StepOption {
	return stepOption(func(o *stepOptions) {
		o.minAge = minAge
		o.interrupted = &typedStep[func(context.Context, time.Time) (tried, error)]{reflect.TypeFor[T](), nil}
		if fn == nil {
			return
		}
		o.interrupted.fn = func(ctx context.Context, began time.Time) (tried, error) {
			return encoding(func(ctx context.Context) (T, error) { return fn(ctx, began) })(ctx)
		}
	})
}
