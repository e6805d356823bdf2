package idemlambda

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Reason is why a message, record or event is acknowledged or redelivered. The
// values are stable: metrics may have them as a dimension.
type Reason string

// These acknowledge: the service does not deliver it again.
const (
	// ReasonExecuted: the handler succeeded, even if its outcome could not be
	// recorded yet. A worker of accepted work has recorded it.
	ReasonExecuted Reason = "executed"
	// ReasonReplayed: the handler had succeeded before, or in this batch.
	ReasonReplayed Reason = "replayed"
	// ReasonFailed: a permanent failure is recorded, now or before. Delivering it
	// again could not change that.
	ReasonFailed Reason = "failed"
)

// With these the service redelivers it, until its limit or until the record expires. It then goes
// to the dead-letter queue or on-failure destination, if one is set.
const (
	// ReasonReleased: the handler failed and may run again with the next delivery.
	ReasonReleased Reason = "released"
	// ReasonUnknown: this or an earlier attempt may have taken effect; its
	// outcome is unknown. The message must not be lost before the record is resolved.
	ReasonUnknown Reason = "unknown"
	// ReasonNotYetKnown: an earlier attempt died in a step, and [idem.StepConfig].Interrupted was
	// asked too early for its answer to count. [Delivery].LeaseUntil is when it counts.
	ReasonNotYetKnown Reason = "not_yet_known"
	// ReasonUnrecorded: the handler failed, or it was a worker of accepted work, and its outcome could
	// not be recorded yet.
	ReasonUnrecorded Reason = "unrecorded"
	// ReasonPanicked: the handler, the key function or the body's own decoder
	// panicked.
	ReasonPanicked Reason = "panicked"
	// ReasonFailureNotForwarded: a permanent failure is recorded, and the OnFailed hook
	// returned an error or panicked.
	ReasonFailureNotForwarded Reason = "failure_not_forwarded"
	// ReasonInFlight: another attempt holds the claim. The error is an
	// [*idem.InFlightError].
	ReasonInFlight Reason = "in_flight"
	// ReasonAccepted: the work waits for another worker.
	ReasonAccepted Reason = "accepted"
	// ReasonNotAccepted: a worker's message is about nothing that was accepted, or is kept. It
	// goes to the dead-letter queue, since another table may have the record.
	ReasonNotAccepted Reason = "not_accepted"
	// ReasonLimitExceeded: a limit of package limit refuses it; nothing has taken effect.
	// [Delivery].LeaseUntil is when it is of use to try again at the earliest.
	ReasonLimitExceeded Reason = "limit_exceeded"
	// ReasonPaused: an operator has paused the operation, or the tenant's calls of it; nothing was executed.
	// [Delivery].LeaseUntil is when it is of use to try again.
	ReasonPaused Reason = "paused"
	// ReasonKeyReused: the key belongs to something with another body.
	ReasonKeyReused Reason = "key_reused"
	// ReasonKeyInvalid: there is no usable key.
	ReasonKeyInvalid Reason = "key_invalid"
	// ReasonBodyUnreadable: the body does not decode, or has no canonical form, such as a
	// body with a member named twice.
	ReasonBodyUnreadable Reason = "body_unreadable"
	// ReasonRecordUnreadable: the record, or a step's result in it, is damaged, or a newer version
	// wrote it.
	ReasonRecordUnreadable Reason = "record_unreadable"
	// ReasonStoreUnavailable: the store could not be reached; nothing was executed.
	ReasonStoreUnavailable Reason = "store_unavailable"
	// ReasonOutOfTime: too little time of the invocation was left; nothing was executed.
	ReasonOutOfTime Reason = "out_of_time"
	// ReasonBlocked: an earlier delivery is redelivered, and order matters; nothing was
	// executed.
	ReasonBlocked Reason = "behind_failure"
)

// Acknowledges reports whether the service does not deliver it again.
func (r Reason) Acknowledges() bool {
	return r == ReasonExecuted || r == ReasonReplayed || r == ReasonFailed
}

// reasonOfOwn is for an attempt of this call. A success acknowledges even if it could
// not be recorded yet, but for accepted work. A failure acknowledges only if it is recorded.
func reasonOfOwn(out idem.Outcome) Reason {
	switch {
	case out.AttemptState == idem.Completed:
		return ReasonExecuted
	case out.RecordState == idem.Failed:
		return ReasonFailed
	case out.RecordState == idem.Released && !askAgain(&out).IsZero():
		return ReasonNotYetKnown
	case out.RecordState == idem.Released && errors.Is(out.StopCause, idem.ErrRecordUnreadable):
		return ReasonRecordUnreadable
	case out.RecordState == idem.Released:
		return ReasonReleased
	case out.RecordState == idem.Unknown:
		return ReasonUnknown
	}
	return ReasonUnrecorded
}

// askAgain is when a step can be asked about that has stopped the attempt; zero if none has.
func askAgain(out *idem.Outcome) time.Time {
	if open, ok := errors.AsType[*idem.StepInterruptedError](out.StopCause); ok {
		return open.RetryAt
	}
	return time.Time{}
}

// reasonOfAnswer is for a call that the engine answered without an attempt. An error
// that is not in the list is redelivered: only a known outcome acknowledges.
func reasonOfAnswer(err error) Reason {
	switch err.(type) {
	case nil:
		return ReasonReplayed
	case *idem.RecordedError:
		return ReasonFailed
	}
	for _, a := range ofEngine {
		if a.reason != "" && errors.Is(err, a.is) {
			return a.reason
		}
	}
	return ReasonStoreUnavailable
}

// level is the level at which an outcome is logged.
func (r Reason) level() slog.Level {
	switch r {
	case ReasonExecuted, ReasonReplayed:
		return slog.LevelDebug
	case ReasonInFlight, ReasonNotYetKnown, ReasonAccepted, ReasonLimitExceeded, ReasonPaused, ReasonOutOfTime,
		ReasonBlocked:
		return slog.LevelInfo
	case ReasonPanicked:
		return slog.LevelError
	}
	return slog.LevelWarn
}

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
		PausedError             struct{ answer }
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
		{idem.ErrPaused, ReasonPaused, func(a answer) error { return PausedError{a} }},
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
