package reconcile

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Resolution is what a person, or a question to the provider, found out about an
// unknown outcome.
type Resolution struct {
	// To is Completed (it took effect, and Result is its outcome), Failed (it ended
	// in Failure) or Released (it did not take effect). Required.
	To idem.State
	// Result of To Completed: make it with [Encode], or for a request with the Encode
	// method of its idemhttp.Contract. It must be of the handler's result type: only the
	// encoding is checked. Nil means that it is not known: replays say
	// [idem.ErrOutcomeUnavailable].
	Result *protocol.Encoded
	// Failure of To Failed. Required there. Each of its texts has at most 2 KB. Its Code must not say that no attempt
	// was made ([protocol.CodeNotStarted], [protocol.CodeCancelled]).
	Failure *idem.Failure
	// Steps of To Released are what became of the steps that were interrupted, by name:
	// [CompletedWith] the result of the step's function, [CompletedWithoutResult] (an
	// [idem.StepUnavailableError] for the handler, unless it is an [idem.StepEffect]),
	// [FailedWith] or [NotExecuted]. The next call gets them as the steps' outcomes and goes on;
	// only what was not executed runs again. All interrupted steps must be named, and with Replace
	// those that took effect or failed according to the earlier resolution. Ask the
	// provider with the step's token ([Step.Token]): it does not know the operation's. A step that took
	// effect is undone like the others if the operation fails. The compensation of one that returns
	// something needs the result: without it the next call parks the operation when it comes to the
	// step, and the result must be said then. A result of another type than the step's does so too.
	// What an attempt has continued with stays. Nil if there are none.
	Steps map[string]Answer
	// CompensatedManually says that what the steps did has been undone, by their compensations or by hand, and
	// that this is the outcome all the same. Without it a [*NotUndoneError] refuses To Failed, and To
	// Completed with a Result that is Failed, such as a refusal's response, for a record with
	// compensations that have not run; and any To Completed for an operation that has failed and is
	// being undone, or has been. There it may have a refusal to replay, but the provider's word that
	// the operation took effect is none.
	CompensatedManually bool
	// Replace lets it replace the resolution that [Change].IfWrite names, as long as no attempt has
	// claimed since. What an attempt has recorded itself cannot be replaced. What the earlier
	// resolution has said of steps goes with it, and one that would change nothing is refused. The steps
	// that the earlier one has removed, because it said [NotExecuted] of them, and all of them if it
	// was to Completed or Failed, stay removed: a later attempt runs them again. What must be undone
	// before To Failed is known all the same.
	Replace bool
	// Attempt is the number of the attempt that the resolution is about. If the record is of
	// another one by now, the resolution gives [ErrNotUnknown]. Set it if what was found out
	// holds only for that attempt, for example that it had no effect. Zero means the one that
	// Resolve finds.
	Attempt int
	// Ref is the provider's reference, if there is one: at most 256 bytes, without control
	// characters. With Replace that of the earlier resolution goes, also if Ref is empty.
	Ref string
}

// checkWhole is check for a resolution that says what became of the whole operation.
func (r Resolution) checkWhole() error {
	if f := r.Failure; f != f.OfAttempt() {
		return invalid("resolution", "Failure has the Code %q, by which a sweep and a client's cancellation say that no "+
			"attempt was made: leave it out, or use another one", f.Code)
	}
	return r.check()
}

func (r Resolution) check() error {
	invalid := func(format string, args ...any) error { return invalid("resolution", format, args...) }
	switch {
	case r.To != idem.Completed && r.To != idem.Failed && r.To != idem.Released:
		return invalid("To is %q: use idem.Completed, idem.Failed or idem.Released", r.To)
	case r.To == idem.Failed && r.Failure == nil:
		return invalid("Failure is nil: say what the failure is")
	case r.To != idem.Completed && r.Result != nil:
		return invalid("Result is given: only a completed outcome has one")
	case r.To != idem.Released && len(r.Steps) > 0:
		return invalid("Steps is given: only what is released goes on after its steps")
	case r.Steps != nil && len(r.Steps) == 0:
		return invalid("Steps is empty: name the interrupted steps, or leave it nil if there are none")
	case r.To == idem.Released && r.CompensatedManually:
		return invalid("CompensatedManually is set: what is released goes on with its steps, or with undoing them")
	case len(r.Ref) > maxReference:
		return invalid("Ref has %d bytes: use at most %d, or a digest of it", len(r.Ref), maxReference)
	case !utf8.ValidString(r.Ref) || strings.ContainsFunc(r.Ref, unicode.IsControl):
		return invalid("Ref has control characters or is not valid UTF-8: use its hexadecimal form")
	}
	for name, a := range r.Steps {
		if problem := a.asStep(); problem != nil {
			return invalid("Steps[%q]: %v", name, problem)
		}
	}
	if f := r.Failure; f != nil {
		for _, text := range []string{f.Message, f.Type, f.Code} {
			if len(text) > maxFailureText || !utf8.ValidString(text) {
				return invalid("Failure has a text of more than %d bytes, or one that is not valid UTF-8: shorten it",
					maxFailureText)
			}
		}
	}
	if r.Result == nil {
		return nil
	}
	if v := r.Result.ResponseVersion; v < 0 || v > math.MaxInt32 {
		return invalid("the ResponseVersion of Result is %d: count versions from zero", v)
	}
	if r.Result.Check == nil && !json.Valid(r.Result.Body) {
		return invalid("Result is not JSON, which later calls could not read: encode it with Encode, " +
			"or for an HTTP request with the contract's Encode method")
	}
	if r.Result.Check != nil {
		if err := guarded(func() error { return r.Result.Check(r.Result.Body) }); err != nil {
			return invalid("later calls could not read Result: %v", err)
		}
	}
	return nil
}

// Limits as for an attempt's own end: every later call reads these texts.
const (
	maxReference   = 256
	maxFailureText = 2048
)

// Errors of changes that are refused. Use errors.Is to tell them apart.
var (
	// ErrNotFound: there is no such record.
	ErrNotFound = protocol.ErrNotFound
	// ErrNotUnknown: the record to resolve is not unknown.
	ErrNotUnknown = errors.New("reconcile: only an unknown outcome can be resolved")
	// ErrTooEarly: a resolution to Released came before the parked attempt's lease and
	// margin were over.
	ErrTooEarly = errors.New("reconcile: the parked attempt may still be running; resolve to released after its lease")
	// ErrNotUndone: the resolution to Failed or Completed needs [Resolution.CompensatedManually]. Read a
	// [*NotUndoneError] for the steps.
	ErrNotUndone = errors.New("reconcile: steps have not been undone")
	// ErrStepsUnnamed: the resolution to Released does not say in [Resolution.Steps] what became of
	// each interrupted step.
	ErrStepsUnnamed = errors.New("reconcile: interrupted steps are not named")
	// ErrChanged: the record has been written since it was looked at ([Change.IfWrite]), or keeps being written.
	ErrChanged = errors.New("reconcile: the record has changed since it was looked at: look again")
	// ErrOpen: the record to forget or to extend is an open question, or in progress.
	ErrOpen = errors.New("reconcile: only a record that has ended can be forgotten")
	// ErrExpired: the record to extend has expired, and counts as absent.
	ErrExpired = errors.New("reconcile: the record has expired")
	// ErrSentLately: the message to send again was sent less than [ResendAfter] ago.
	ErrSentLately = errors.New("reconcile: the message was sent a moment ago, and a FIFO queue or topic would drop it")
)

// NotUndoneError says which steps of a record have compensations, where a resolution would
// forget that: To Failed those that have not run, To Completed all of an operation that has
// failed. It matches [ErrNotUndone].
type NotUndoneError struct {
	// To is Failed also where the result of To Completed is, see [protocol.Encoded].
	To idem.State
	// Steps are those whose compensations have not run, Undone those whose have, in order.
	Steps, Undone []string
}

func (e *NotUndoneError) Error() string {
	if e.To == idem.Completed {
		return fmt.Sprintf("reconcile: the operation has failed: what the steps %q did has been undone, that of %q not "+
			"yet: resolve it to failed, or to released, and the next attempt goes on undoing; if it has a result to replay "+
			"all the same, such as a refusal's response, undo the rest by hand and set Resolution.CompensatedManually",
			e.Undone, e.Steps)
	}
	return fmt.Sprintf("%v: %q: undo them by hand and set Resolution.CompensatedManually; or resolve to released and say "+
		"in Resolution.Steps what an interrupted step did: the next attempt undoes them or continues",
		ErrNotUndone, e.Steps)
}

func (e *NotUndoneError) Is(target error) bool { return target == ErrNotUndone }

// fails reports whether a handler that ended so would have had its steps undone.
func (r Resolution) fails() bool {
	return r.To == idem.Failed || r.To == idem.Completed && r.Result != nil && r.Result.Failed
}

// notUndone lists the recorded steps whose compensations have not run.
func notUndone(rec *idem.Record) []string { return owing(rec, false) }

// owing lists the recorded steps whose compensations have run, or have not.
func owing(rec *idem.Record, undone bool) []string {
	return stepsOf(rec, func(name string, s protocol.RecordedStep) bool {
		return s.NeedsCompensation() && rec.Undone(name) == undone
	})
}

// toUndo lists the steps that must have been undone before the record can be resolved so: with
// [Resolution.CompensatedManually] they are.
func toUndo(rec *idem.Record, res Resolution) []string {
	switch {
	case res.To == idem.Completed && rec.Undoing():
		return append(owing(rec, true), notUndone(rec)...)
	case res.fails():
		return notUndone(rec)
	}
	return nil
}
