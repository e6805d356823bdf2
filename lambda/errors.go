package idemlambda

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/protocol"
)

// answer is an error of the engine under a type of its own.
type answer struct{ error }

func (a answer) Unwrap() error { return a.error }

// toRuntime gives an answer of the engine its errorType. The runtime reports the
// name of the error's Go type, by which Step Functions and callers choose what to
// retry: plain sentinels would all be "errorString". The names must not change. Errors
// that are not the engine's stay as they are.
func toRuntime(err error) error { return typed(err, err) }

// errNotYetKnown stands for a step that is asked about again later.
var errNotYetKnown = errors.New("idemlambda: the outcome is not yet known")

// stopped is the error of an attempt that the engine has ended, and not its handler.
func stopped(out *idem.Outcome, err error) error {
	switch {
	case out.AttemptState == idem.Unknown, out.RecordState == idem.Unknown:
		// As later calls get it.
		return typed(idem.ErrOutcomeUnknown, fmt.Errorf("%w: %w", idem.ErrOutcomeUnknown, err))
	case !askAgain(out).IsZero():
		return typed(errNotYetKnown, err)
	case errors.Is(out.StopCause, idem.ErrStoreUnavailable):
		// That type says that nothing was executed, and the handler has run.
		return typed(idem.ErrNotCommitted, err)
	}
	return typed(out.StopCause, err)
}

// typed gives err the errorType of an answer.
func typed(as, err error) error {
	for _, a := range ofEngine {
		if a.typed != nil && errors.Is(as, a.is) {
			return a.typed(answer{err})
		}
	}
	return fromHandler(err)
}

// ofEngine are the errors of the engine: the first that an error is has the type that the runtime
// reports, and the reason of a record's delivery. An empty one has none.
var ofEngine = func() []engineAnswer {
	type (
		AcceptedError           struct{ answer }
		DurableExecutionError   struct{ answer }
		InFlightError           struct{ answer }
		KeyInvalidError         struct{ answer }
		KeyReusedError          struct{ answer }
		LimitExceededError      struct{ answer }
		NotCanonicalError       struct{ answer }
		NotCommittedError       struct{ answer }
		OutcomeNotYetKnownError struct{ answer }
		OutcomeUnavailableError struct{ answer }
		OutcomeUnknownError     struct{ answer }
		OutOfTimeError          struct{ answer }
		RecordUnreadableError   struct{ answer }
		StoreUnavailableError   struct{ answer }
	)
	return []engineAnswer{
		{errNotYetKnown, "", func(a answer) error { return OutcomeNotYetKnownError{a} }},
		{ErrDurableExecution, "", func(a answer) error { return DurableExecutionError{a} }},
		{idem.ErrRecordUnreadable, ReasonRecordUnreadable, func(a answer) error { return RecordUnreadableError{a} }},
		{fingerprint.ErrNotCanonical, "", func(a answer) error { return NotCanonicalError{a} }},
		{idem.ErrKeyInvalid, ReasonKeyInvalid, func(a answer) error { return KeyInvalidError{a} }},
		{idem.ErrKeyReused, ReasonKeyReused, func(a answer) error { return KeyReusedError{a} }},
		{protocol.ErrNotAccepted, ReasonNotAccepted, nil},
		{idem.ErrOutcomeUnknown, ReasonUnknown, func(a answer) error { return OutcomeUnknownError{a} }},
		{idem.ErrOutcomeUnavailable, ReasonReplayed, func(a answer) error { return OutcomeUnavailableError{a} }},
		{idem.ErrAccepted, ReasonAccepted, func(a answer) error { return AcceptedError{a} }},
		{idem.ErrLimitExceeded, ReasonLimitExceeded, func(a answer) error { return LimitExceededError{a} }},
		{idem.ErrInFlight, ReasonInFlight, func(a answer) error { return InFlightError{a} }},
		{idem.ErrOutOfTime, ReasonOutOfTime, func(a answer) error { return OutOfTimeError{a} }},
		{idem.ErrNotCommitted, "", func(a answer) error { return NotCommittedError{a} }},
		{idem.ErrStoreUnavailable, "", func(a answer) error { return StoreUnavailableError{a} }},
	}
}()

type engineAnswer struct {
	is     error
	reason Reason
	typed  func(answer) error
}

// lambdaInvokeError replaces a handler's messages.InvokeResponse_Error while it is
// recorded, because the runtime reports another text and type than that error's own. The
// name of this type is recorded, so it must not change.
type lambdaInvokeError struct {
	given error // with the handler's marks
	as    messages.InvokeResponse_Error
}

func (e *lambdaInvokeError) Error() string     { return e.as.Message }
func (e *lambdaInvokeError) ErrorCode() string { return e.as.Type }
func (e *lambdaInvokeError) Unwrap() error     { return e.given }

// recordable makes a handler's error one that is recorded as the runtime reports
// it.
func recordable(err error) error {
	if as, ok := idem.Unmark(err).(messages.InvokeResponse_Error); ok {
		return &lambdaInvokeError{err, as}
	}
	return err
}

// fromHandler gives the runtime the handler's own error again. A recorded failure
// gets the errorMessage and errorType that the runtime reported the first time.
func fromHandler(err error) error {
	switch e := err.(type) {
	case *lambdaInvokeError:
		return e.as
	case *idem.RecordedError:
		kind := e.Type
		if kind == reflect.TypeFor[lambdaInvokeError]().Name() {
			kind = e.Code
		}
		return messages.InvokeResponse_Error{Message: e.Message, Type: kind}
	}
	return err
}

// undecodable is the error of a text that does not decode, for logs: encoding/json quotes what
// was sent.
func undecodable(noun string, err error) error {
	if err == nil {
		return nil
	}
	return protocol.Redact("idemlambda: the "+noun+" does not decode", err)
}
