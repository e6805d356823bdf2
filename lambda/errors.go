package idemlambda

import (
	"errors"
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
func toRuntime(err error) error {
	type (
		AcceptedError           struct{ answer }
		DurableExecutionError   struct{ answer }
		InFlightError           struct{ answer }
		KeyInvalidError         struct{ answer }
		KeyReusedError          struct{ answer }
		NotCanonicalError       struct{ answer }
		NotCommittedError       struct{ answer }
		OutcomeUnavailableError struct{ answer }
		OutcomeUnknownError     struct{ answer }
		OutOfTimeError          struct{ answer }
		RecordUnreadableError   struct{ answer }
		StoreUnavailableError   struct{ answer }
	)
	a := answer{err}
	switch {
	case isRecorded(err):
		return fromHandler(err)
	case errors.Is(err, ErrDurableExecution):
		return DurableExecutionError{a}
	case errors.Is(err, idem.ErrRecordUnreadable):
		return RecordUnreadableError{a}
	case errors.Is(err, fingerprint.ErrNotCanonical):
		return NotCanonicalError{a}
	case errors.Is(err, idem.ErrKeyInvalid):
		return KeyInvalidError{a}
	case errors.Is(err, idem.ErrKeyReused):
		return KeyReusedError{a}
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return OutcomeUnknownError{a}
	case errors.Is(err, idem.ErrOutcomeUnavailable):
		return OutcomeUnavailableError{a}
	case errors.Is(err, idem.ErrAccepted):
		return AcceptedError{a}
	case errors.Is(err, idem.ErrInFlight):
		return InFlightError{a}
	case errors.Is(err, idem.ErrOutOfTime):
		return OutOfTimeError{a}
	case errors.Is(err, idem.ErrNotCommitted):
		return NotCommittedError{a}
	case errors.Is(err, idem.ErrStoreUnavailable):
		return StoreUnavailableError{a}
	}
	return err
}

func isRecorded(err error) bool {
	_, ok := err.(*idem.RecordedError)
	return ok
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
	return protocol.Unquoted("idemlambda: the "+noun+" does not decode", err)
}
