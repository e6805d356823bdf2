package idem

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
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
// An error of fn is returned as it is. [Permanent] errors are the step's outcome:
// they are recorded, and a later attempt gets them as a [*RecordedError] that is
// permanent too. After any other error the step has no outcome; a later attempt
// runs it again, unless it is AtMostOnce.
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
	raw, err := s.do(func(ctx context.Context) ([]byte, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		var probe T
		return throughCodec(v, &probe)
	})
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return *new(T), s.halt(fmt.Errorf("%w: the result recorded of step %q does not fit %T: %w", ErrRecordUnreadable, name, out, err))
	}
	return out, nil
}

// StepOption is an option of a [Step].
type StepOption interface{ apply(*stepOptions) }

type stepOptions struct {
	semantics   StepSemantics
	retry       RetryConfig
	compensate  *typedStep[func(context.Context, []byte) error]
	interrupted *typedStep[func(context.Context) ([]byte, error)]
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
// operation fails for good, with a [Permanent] error or by [Compensate], the
// compensations of its steps run in reverse order, each recorded as a step, before
// the failure is: a crash between two of them resumes with the next one, and no
// further step runs forward. fn runs at least once, with a [Token] of its own, and
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
// [Token]. It is called instead of the step's function and settles the step: with
// its result, with a [Permanent] error as the step's outcome, or with a
// [NotExecuted] error, which says that the step surely had no effect and lets its
// function run. After any other error the step stays open.
//
// Only an attempt that follows a crash asks it. An error of the step's function that
// is neither Permanent nor NotExecuted parks the operation at once, a time-out too:
// ask the other system inside the function before you return such an error.
func WithInterrupted[T any](fn func(context.Context) (T, error)) StepOption {
	return stepOption(func(o *stepOptions) {
		o.interrupted = &typedStep[func(context.Context) ([]byte, error)]{reflect.TypeFor[T](), nil}
		if fn == nil {
			return
		}
		o.interrupted.fn = func(ctx context.Context) ([]byte, error) {
			v, err := fn(ctx)
			if err != nil {
				return nil, err
			}
			var probe T
			return throughCodec(v, &probe)
		}
	})
}

// StepInterruptedError is what an AtMostOnce step returns that began in an earlier
// attempt and left no outcome: it may have taken effect, and is not run again. It
// matches [ErrStepInterrupted]. While the step is open, the operation ends as
// unknown, whatever its declaration and whatever the handler returns;
// [WithInterrupted] settles it.
type StepInterruptedError struct {
	// Name of the step.
	Name string
	// Err is why it could not be settled; nil if nobody tried.
	Err error
}

func (e *StepInterruptedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%v: step %q: %v", ErrStepInterrupted, e.Name, e.Err)
	}
	return fmt.Sprintf("%v: step %q", ErrStepInterrupted, e.Name)
}

// Is makes the error match [ErrStepInterrupted].
func (e *StepInterruptedError) Is(target error) bool { return target == ErrStepInterrupted }

func (e *StepInterruptedError) Unwrap() error { return e.Err }
