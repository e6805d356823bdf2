package idemlambda

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/require"
)

// typeName is the errorType that aws-lambda-go reports.
func typeName(err error) string {
	if e, ok := err.(messages.InvokeResponse_Error); ok {
		return e.Type
	}
	if t := reflect.TypeOf(err); t.Kind() == reflect.Pointer {
		return t.Elem().Name()
	} else {
		return t.Name()
	}
}

func message(err error) string {
	if e, ok := err.(messages.InvokeResponse_Error); ok {
		return e.Message
	}
	return err.Error()
}

// DeclinedError is a service's own error type.
type DeclinedError struct{ Reason string }

func (e *DeclinedError) Error() string     { return "declined: " + e.Reason }
func (e *DeclinedError) ErrorCode() string { return "insufficient_funds" }

// failures are what handlers return, by name; all are recorded.
func failures() map[string]error {
	own := messages.InvokeResponse_Error{Message: "no cover", Type: "CardDeclined",
		StackTrace: []*messages.InvokeResponse_Error_StackFrame{{Path: "a.go"}}}
	return map[string]error{
		"plain":         errors.New("plain"),
		"own type":      &DeclinedError{"no cover"},
		"wrapped":       fmt.Errorf("charging: %w", &DeclinedError{"no cover"}),
		"lambda":        own,
		"lambda inside": fmt.Errorf("charging: %w", own),
		"recorded":      &idem.RecordedError{Failure: idem.Failure{Message: "inner", Type: "InnerError", Code: "c"}},
	}
}

func TestRecordedFailureReplaysMessageAndType(t *testing.T) {
	for name, given := range failures() {
		for _, mark := range []func(error) error{idem.Permanent,
			func(err error) error { return idem.NotExecuted(idem.Permanent(idem.Permanent(err))) }} {
			t.Run(name, func(t *testing.T) {
				n := 0
				op := charge
				op.Classify = func(_ context.Context, _ any, err error) idem.Class {
					var own messages.InvokeResponse_Error
					require.Equal(t, name == "lambda" || name == "lambda inside", errors.As(err, &own),
						"the rule sees the handler's error")
					return idem.ClassFailed
				}
				h := Wrap(newEngine(t, memory()), op, byPaymentID,
					func(context.Context, payment) (receipt, error) { n++; return receipt{}, mark(given) })
				_, live := invoke(t, h, event)
				require.Error(t, live)
				if name == "recorded" {
					require.Equal(t, messages.InvokeResponse_Error{Message: "inner", Type: "InnerError"}, live)
				} else {
					require.Equal(t, given, live, "the handler's own error")
				}
				_, again := invoke(t, h, event)
				require.Equal(t, 1, n)
				require.Equal(t, typeName(live), typeName(again))
				require.Equal(t, message(live), message(again))
			})
		}
	}
}

// Marks decide, also around and under an error of aws-lambda-go's own type. The caller gets the handler's error, also
// one that looks like the engine's.
func TestMarksCountAroundLambdaErrors(t *testing.T) {
	own := messages.InvokeResponse_Error{Message: "m", Type: "T"}
	alike := &idem.InFlightError{}
	for _, c := range []struct {
		given, live error
		state       idem.State
	}{
		{own, own, idem.Unknown},
		{idem.Permanent(own), own, idem.Failed},
		{idem.NotExecuted(own), own, idem.Released},
		{idem.NotExecuted(idem.Permanent(own)), own, idem.Released},
		{idem.ErrInFlight, idem.ErrInFlight, idem.Unknown},
		{idem.ErrKeyReused, idem.ErrKeyReused, idem.Unknown},
		{alike, alike, idem.Unknown},
	} {
		store := memory()
		h := Wrap(newEngine(t, store), charge, byPaymentID,
			func(context.Context, payment) (receipt, error) { return receipt{}, c.given })
		_, err := invoke(t, h, event)
		require.Equal(t, c.live, err)
		rec, err := store.Get(t.Context(), charge.Key(idem.SingleTenant, "pay_1").ID())
		require.NoError(t, err)
		require.Equal(t, c.state, rec.State)
		require.Equal(t, message(c.live), rec.Failure.Message)
	}
}

// The engine's answers have stable error types and are still found by errors.Is.
func TestAnswersHaveTheirOwnErrorType(t *testing.T) {
	running := idem.Record{State: idem.InProgress, LeaseUntil: noon.Add(time.Minute), Attempt: 1}
	for kind, c := range map[string]struct {
		store idem.Store
		is    error
	}{
		"InFlightError":         {occupied{memory(), running}, idem.ErrInFlight},
		"AcceptedError":         {occupied{memory(), idem.Record{State: idem.Pending}}, idem.ErrAccepted},
		"OutcomeUnknownError":   {occupied{memory(), idem.Record{State: idem.Unknown}}, idem.ErrOutcomeUnknown},
		"StoreUnavailableError": {unreachable(), idem.ErrStoreUnavailable},
		"RecordUnreadableError": {damaged(), idem.ErrRecordUnreadable},
	} {
		h := Wrap(newEngine(t, c.store), charge, byPaymentID, func(context.Context, payment) (receipt, error) {
			t.Fatal("the handler ran")
			return receipt{}, nil
		})
		_, err := invoke(t, h, event)
		require.Equal(t, kind, typeName(err))
		require.ErrorIs(t, err, c.is)
	}
	require.Equal(t, "PausedError", typeName(toRuntime(&idem.PausedError{})))
	require.Equal(t, "LimitExceededError", typeName(toRuntime(&idem.LimitExceededError{})))
	var flight *idem.InFlightError
	require.ErrorAs(t, toRuntime(&idem.InFlightError{Attempt: 3}), &flight)
	require.Equal(t, 3, flight.Attempt)
	require.Equal(t, "NotCommittedError",
		typeName(toRuntime(&idem.CommitError{State: idem.Released, Err: errors.New("no answer")})))
	require.Equal(t, "OutcomeUnknownError",
		typeName(toRuntime(&idem.CommitError{State: idem.Unknown, Err: errors.New("no answer")})))
	own := errors.New("own")
	require.True(t, toRuntime(own) == own)
}

// charging is a handler that is killed in its charge, about which the provider is asked later.
func charging(after time.Duration) func(context.Context) error {
	c := &idem.StepConfig[string]{Semantics: idem.AtMostOnce}
	if after > 0 {
		c.NotFoundFinalAfter = after
		c.Interrupted = func(context.Context, time.Time) (string, error) {
			return "", idem.NotExecuted(errors.New("not found"))
		}
	}
	return func(ctx context.Context) error {
		_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { panic("killed") }, c)
		return err
	}
}

// What the runtime gets of an attempt that a step has stopped says what the next one gets,
// whether its handler has passed the step's error on, hidden it, or returned none.
func TestAttemptThatAStepHasStoppedHasItsErrorType(t *testing.T) {
	own := errors.New("own")
	for kind, after := range map[string]time.Duration{"OutcomeUnknownError": 0,
		"OutcomeNotYetKnownError": 24 * time.Hour} {
		for name, answer := range map[string]func(error) error{
			"passed on": func(err error) error { return fmt.Errorf("charging: %w", err) },
			"hidden":    func(error) error { return own },
			"none":      func(error) error { return nil },
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				store := memory()
				call := func(store idem.Store, now time.Time) error {
					e := engineAt(t, store, &now)
					_, err := invoke(t, Wrap(e, transfer, byPaymentID, func(ctx context.Context, _ payment) (receipt, error) {
						return receipt{}, answer(charging(after)(ctx))
					}), event)
					return err
				}
				require.Panics(t, func() { _ = call(dying(store), noon) })
				for n := range 2 {
					err := call(store, noon.Add(time.Hour))
					require.Equal(t, kind, typeName(err))
					if n == 0 && name == "hidden" {
						require.ErrorIs(t, err, own)
					}
				}
			})
		}
	}
}

// The handler has run, which a caller that takes another way must know: the type is not that of a
// store that was down before.
func TestAttemptWhoseStepIsNotRecordedIsNotOneThatDidNotRun(t *testing.T) {
	e := realTime(t, broken(memory(), idemtest.LoseRequest, idemtest.RecordStep))
	ran := 0
	_, err := invoke(t, Wrap(e, transfer, byPaymentID, func(ctx context.Context, _ payment) (receipt, error) {
		_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { ran++; return 1, nil }, nil)
		return receipt{}, err
	}), event)
	require.Equal(t, "NotCommittedError", typeName(err))
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Equal(t, 1, ran)
}
