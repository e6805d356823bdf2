package idemlambda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// SQSReason is why a message is acknowledged or goes back to its queue. The values
// are stable: metrics may bear them.
type SQSReason string

// These acknowledge: the message is deleted.
const (
	// SQSExecuted: the handler ran and succeeded, also if that could not be recorded
	// yet.
	SQSExecuted SQSReason = "executed"
	// SQSReplayed: it had succeeded before, or in this batch.
	SQSReplayed SQSReason = "replayed"
	// SQSFailed: a permanent failure is recorded, now or before. Delivering the
	// message again could not change it.
	SQSFailed SQSReason = "failed"
)

// With these the message goes back to its queue, and to the dead-letter queue when
// its receives are used up.
const (
	// SQSReleased: the handler failed and may run again with the next delivery.
	SQSReleased SQSReason = "released"
	// SQSUnknown: an attempt, this or an earlier one, may have taken effect and
	// nobody knows. The record waits to be resolved; the message must not be lost
	// meanwhile.
	SQSUnknown SQSReason = "unknown"
	// SQSUnrecorded: the handler ran, and how it ended could not be recorded or
	// committed for certain yet.
	SQSUnrecorded SQSReason = "unrecorded"
	// SQSPanicked: the handler, the key function or the body's own decoder panicked.
	SQSPanicked SQSReason = "panicked"
	// SQSNotParked: a permanent failure is recorded, and the message could not be
	// parked.
	SQSNotParked SQSReason = "not_parked"
	// SQSInFlight: another attempt holds the claim. The error is an
	// [*idem.InFlightError].
	SQSInFlight SQSReason = "in_flight"
	// SQSAccepted: the work waits for another worker.
	SQSAccepted SQSReason = "accepted"
	// SQSKeyReused: the key belongs to a message with another body.
	SQSKeyReused SQSReason = "key_reused"
	// SQSKeyInvalid: the message has no key that can be used.
	SQSKeyInvalid SQSReason = "key_invalid"
	// SQSBodyUnreadable: the body does not decode, or is no canonical JSON.
	SQSBodyUnreadable SQSReason = "body_unreadable"
	// SQSRecordUnreadable: the record is damaged or of a newer version.
	SQSRecordUnreadable SQSReason = "record_unreadable"
	// SQSStoreUnavailable: the store could not be reached; nothing was executed.
	SQSStoreUnavailable SQSReason = "store_unavailable"
	// SQSOutOfTime: too little of the invocation was left; nothing was executed.
	SQSOutOfTime SQSReason = "out_of_time"
	// SQSBehind: an earlier message of the same group goes back; nothing was
	// executed.
	SQSBehind SQSReason = "behind_failure"
)

// Acknowledges reports whether the message is deleted from its queue.
func (r SQSReason) Acknowledges() bool {
	return r == SQSExecuted || r == SQSReplayed || r == SQSFailed
}

// SQSOutcome is what became of one message.
type SQSOutcome struct {
	// Message as it came. Do not change it.
	Message *events.SQSMessage
	// KeyID is the record's identity, see [idem.Key.ID]; empty if there is no key.
	KeyID string
	// Reason says what became of it.
	Reason SQSReason
	// Err is the handler's error, the engine's answer or the recorded failure; nil
	// if the message was executed or replayed. With SQSReplayed it may be
	// [idem.ErrOutcomeUnavailable], which costs a queue nothing.
	Err error
	// Failure is what the record says, or will say, of an attempt that failed.
	Failure *idem.Failure
	// State of the record as far as is known, and the Attempt that the outcome
	// belongs to.
	State   idem.State
	Attempt int
	// Twin is set if the message shares the outcome of another one of its batch, with
	// the same key and body.
	Twin bool
	// LeaseUntil is, for SQSInFlight and the messages behind one, when the other
	// attempt's lease is over, the observers' margin included, by time.Now; zero
	// where nobody knows.
	LeaseUntil time.Time
}

// SQSPanicError is the error of a message whose handler panicked.
type SQSPanicError struct {
	// Value that was panicked with, and the Stack of the goroutine.
	Value any
	Stack []byte
}

func (e *SQSPanicError) Error() string { return fmt.Sprintf("idemlambda: panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *SQSPanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// reasonOfOwn is for an attempt of this call. A success is one whether or not it
// could be recorded yet; a failure that is not recorded ends no deliveries.
func reasonOfOwn(out idem.Outcome) SQSReason {
	switch {
	case out.Ended == idem.Completed:
		return SQSExecuted
	case out.State == idem.Failed:
		return SQSFailed
	case out.State == idem.Retryable, out.State == idem.Absent:
		// Without a record it was an attempt in atomic mode that ended without outcome.
		return SQSReleased
	case out.State == idem.Unknown:
		return SQSUnknown
	}
	return SQSUnrecorded
}

// reasonOfAnswer is for what the engine answered instead. What is not known goes
// back: acknowledging is for what is.
func reasonOfAnswer(err error) SQSReason {
	switch {
	case err == nil, errors.Is(err, idem.ErrOutcomeUnavailable):
		return SQSReplayed
	case isRecorded(err):
		return SQSFailed
	}
	for _, is := range []struct {
		sentinel error
		reason   SQSReason
	}{
		{idem.ErrRecordUnreadable, SQSRecordUnreadable},
		{idem.ErrKeyInvalid, SQSKeyInvalid},
		{idem.ErrKeyReused, SQSKeyReused},
		{idem.ErrOutcomeUnknown, SQSUnknown},
		{idem.ErrNotCommitted, SQSUnrecorded},
		{idem.ErrAccepted, SQSAccepted},
		{idem.ErrInFlight, SQSInFlight},
		{idem.ErrOutOfTime, SQSOutOfTime},
	} {
		if errors.Is(err, is.sentinel) {
			return is.reason
		}
	}
	return SQSStoreUnavailable
}

// level is how loudly a message's outcome is logged.
func (r SQSReason) level() slog.Level {
	switch r {
	case SQSExecuted, SQSReplayed:
		return slog.LevelDebug
	case SQSInFlight, SQSAccepted, SQSOutOfTime, SQSBehind:
		return slog.LevelInfo
	case SQSPanicked:
		return slog.LevelError
	}
	return slog.LevelWarn
}

// tell reports a message that is settled.
func (b *sqsBatch) tell(m *sqsMessage) {
	m.out.log(m.ctx, b.logger())
	if b.opts.Outcome == nil {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			b.logger().LogAttrs(m.ctx, slog.LevelError, "idem: the Outcome hook panicked",
				slog.String("message", m.msg.MessageId), slog.String("panic", fmt.Sprint(r)))
		}
	}()
	b.opts.Outcome(m.ctx, m.out)
}

func (o *SQSOutcome) log(ctx context.Context, log *slog.Logger) {
	level := o.Reason.level()
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("message", o.Message.MessageId), slog.String("reason", string(o.Reason)), slog.String("record", o.KeyID),
		slog.Int("attempt", o.Attempt), slog.String("receives", o.Message.Attributes["ApproximateReceiveCount"]),
	}
	if o.Err != nil {
		// An error that panics over its text costs only that text.
		attrs = append(attrs, slog.String("error", fmt.Sprint(o.Err)))
	}
	if p, ok := o.Err.(*SQSPanicError); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	what := "idem: message goes back"
	if o.Reason.Acknowledges() {
		what = "idem: message acknowledged"
	}
	log.LogAttrs(ctx, level, what, attrs...)
}
