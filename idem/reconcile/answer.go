package reconcile

import (
	"time"

	"github.com/idem-go/idempotency/idem"
)

// Answer is what a probe has found out. The zero value is StillUnknown(0).
type Answer struct {
	kind   answerKind
	res    Resolution
	err    error // of a result that could not be encoded
	after  time.Duration
	reason string
}

type answerKind uint8

const (
	stillUnknown answerKind = iota
	resolved
	cannotBeKnown
)

// CompletedWith answers that the operation took effect, and that its handler would have
// returned out. Out must be the handler's result type: only the encoding is checked, as
// [Resolve] does. A result that cannot be encoded goes to people, and so does an operation
// that has failed and is being undone, or has been.
func CompletedWith[Out any](out Out) Answer {
	result, err := idem.Encode(out)
	return Answer{kind: resolved, res: Resolution{To: idem.Completed, Result: &result}, err: err}
}

// CompletedWithEncoded is CompletedWith for a result that is encoded already, such as a
// response by the Encode method of its idemhttp.Contract.
func CompletedWithEncoded(result idem.Encoded) Answer {
	return Answer{kind: resolved, res: Resolution{To: idem.Completed, Result: &result}}
}

// CompletedWithoutResult answers that the operation took effect and that its result is not
// known: later calls get [idem.ErrOutcomeUnavailable].
func CompletedWithoutResult() Answer {
	return Answer{kind: resolved, res: Resolution{To: idem.Completed}}
}

// FailedWith answers that the operation has failed for good. If steps have compensations
// that have not run, the question goes to people, who must undo them.
func FailedWith(f idem.Failure) Answer {
	return Answer{kind: resolved, res: Resolution{To: idem.Failed, Failure: &f}}
}

// NotExecuted answers that the operation had no effect and that none can follow: the next
// call runs the handler again. The answer does not count while the parked attempt may still
// be running; the probe is then asked once more after that.
func NotExecuted() Answer { return Answer{kind: resolved, res: Resolution{To: idem.Released}} }

// StillUnknown answers that the provider does not know yet, and after what time to ask
// again, [Operation.GiveUpAfter] at most. Zero leaves the time to the sweep.
func StillUnknown(after time.Duration) Answer { return Answer{after: max(after, 0)} }

// CannotBeKnown answers that it is no use to ask again: people get the question now, with
// the reason.
func CannotBeKnown(reason string) Answer { return Answer{kind: cannotBeKnown, reason: reason} }

// WithRef returns the answer with the provider's name for the effect, which the record
// keeps with an outcome.
func (a Answer) WithRef(ref string) Answer {
	a.res.Ref = ref
	return a
}
