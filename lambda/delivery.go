package idemlambda

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Delivery is the outcome of one record of an event: a message of a queue, a
// notification or a record of a stream, in aws-lambda-go's type.
type Delivery[R any] struct {
	// Event as it came. Do not change it.
	Event *R
	// RecordID is the id of the operation's record, see [idem.Key.ID]; empty if
	// there is no key.
	RecordID string
	// Reason says why it is acknowledged or redelivered.
	Reason Reason
	// Err is the handler's error, the engine's answer or the recorded failure; nil
	// if it was executed or replayed. With ReasonReplayed it may be
	// [idem.ErrOutcomeUnavailable], which does no harm: no caller needs the result.
	Err error
	// Failure of an attempt that failed, as it is or will be recorded.
	Failure *idem.Failure
	// State of the operation's record if it is known, and the Attempt that the outcome
	// belongs to.
	State   idem.State
	Attempt int
	// Duplicate is set if it shares the outcome of another record of the event with the
	// same key and body.
	Duplicate bool
	// LeaseUntil is when the other attempt's lease is over, by time.Now and with the
	// observers' margin. With ReasonNotYetKnown it is when the step can be asked about. It is
	// set for these two reasons and the records behind in the order, and zero if the time is
	// not known.
	LeaseUntil time.Time
}

// PanicError is the error of a delivery whose handler panicked.
type PanicError struct {
	// Value of the panic, and the Stack of the goroutine.
	Value any
	Stack []byte
}

// Error has the type of the value, whose text may quote the event.
func (e *PanicError) Error() string { return protocol.Redact("idemlambda: panic", e.Value).Error() }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// delivery is a record of an event while it is worked on.
type delivery[R any] struct {
	ctx  context.Context
	name string // in logs
	at   int    // place in the event
	turn *turn  // nil behind the first of a lane
	out  Delivery[R]
}

// ended gives the reason for a delivery whose handler, key function or decoder panicked or left
// its goroutine; a handler's attempt has been recorded by then.
func (d *delivery[R]) ended() {
	if r := recover(); r != nil {
		d.out.Reason, d.out.Err = ReasonPanicked, &PanicError{Value: r, Stack: debug.Stack()}
	} else if d.out.Reason == "" {
		d.out.Reason, d.out.Err = ReasonPanicked, errGoexit
	}
}

// share answers a delivery like the first of its duplicates in the event. The store would
// say the same, or less if the first one's outcome is not written yet.
func (d *delivery[R]) share(first Delivery[R]) {
	record := d.out.Event
	d.out = first
	d.out.Event, d.out.Duplicate = record, true
	if first.Reason == ReasonExecuted {
		d.out.Reason = ReasonReplayed
	}
}

// report logs a delivery that has its reason, and passes it to OnOutcome.
func (s *source[R]) report(d *delivery[R]) {
	s.log(d)
	if s.opts.OnOutcome == nil {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			s.logPanic(d.ctx, "OnOutcome", protocol.RedactPanic("the hook", r), slog.String("event", d.name))
		}
	}()
	s.opts.OnOutcome(d.ctx, d.out)
}

// logPanic logs that a hook panicked.
func (s *source[R]) logPanic(ctx context.Context, hook string, err error, more ...slog.Attr) {
	defer unlogged()
	s.logger().LogAttrs(ctx, slog.LevelError, "idem: the "+hook+" hook panicked",
		append(more, slog.String("error", err.Error()))...)
}

// unlogged is deferred where a line is logged: a logger that panics costs that line alone.
func unlogged() { _ = recover() }

func (s *source[R]) log(d *delivery[R]) {
	defer unlogged()
	o, log := &d.out, s.logger()
	level := o.Reason.level()
	if !log.Enabled(d.ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("event", d.name), slog.String("reason", string(o.Reason))}
	if o.RecordID != "" {
		attrs = append(attrs, slog.String("record", o.RecordID))
	}
	if o.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", o.Attempt))
	}
	if s.also != nil {
		if also := s.also(o.Event); also.Value.String() != "" {
			attrs = append(attrs, also)
		}
	}
	if o.Err != nil {
		// An error that panics over its text costs only that text.
		attrs = append(attrs, slog.String("error", fmt.Sprint(o.Err)))
	}
	if p, ok := o.Err.(*PanicError); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	what := "will be redelivered"
	if o.Reason.Acknowledges() {
		what = "acknowledged"
	}
	log.LogAttrs(d.ctx, level, "idem: "+s.noun+" "+what, attrs...)
}

// forwardsLast reports whether a delivery waits for [source.forwardLast].
func (s *source[R]) forwardsLast(d *delivery[R]) bool {
	return s.redeliverFrom != nil && s.opts.OnFailed != nil && d.out.Reason == ReasonFailed
}

// forwardLast passes failed deliveries to the OnFailed hook when it is known which are
// acknowledged: a delivery that is redelivered because of another record would be
// forwarded each time. A delivery that cannot be forwarded is redelivered, with those
// that depend on it.
func (s *source[R]) forwardLast(ds []delivery[R]) {
	for i := range ds {
		d := &ds[i]
		if !s.forwardsLast(d) {
			continue
		}
		runIsolated(func() {
			defer s.report(d)
			if i < s.redeliverFrom(ds) {
				s.forward(d)
			}
		})
	}
}

// forward passes a failed delivery to the OnFailed hook. Unless the hook succeeds, the
// delivery is redelivered.
func (s *source[R]) forward(d *delivery[R]) {
	failed := d.out
	d.out.Reason, d.out.Err = ReasonFailureNotForwarded, errGoexit
	defer func() {
		if r := recover(); r != nil {
			d.out.Err = &PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	if err := s.opts.OnFailed(d.ctx, failed); err != nil {
		d.out.Err = fmt.Errorf("idemlambda: the failure is recorded, and the OnFailed hook could not forward it: %w", err)
		return
	}
	d.out = failed
}
