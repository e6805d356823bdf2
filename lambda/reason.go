package idemlambda

import (
	"errors"
	"log/slog"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// Reason is why a message, record or event is acknowledged or redelivered. The
// values are stable: metrics may have them as a dimension.
type Reason string

// These acknowledge: the service does not deliver it again.
const (
	// ReasonExecuted: the handler succeeded, even if its outcome could not be
	// recorded yet.
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
	// ReasonUnrecorded: the handler failed, and its failure could not be recorded yet.
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
// not be recorded yet. A failure acknowledges only if it is recorded.
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
	case ReasonInFlight, ReasonNotYetKnown, ReasonAccepted, ReasonLimitExceeded, ReasonOutOfTime, ReasonBlocked:
		return slog.LevelInfo
	case ReasonPanicked:
		return slog.LevelError
	}
	return slog.LevelWarn
}
