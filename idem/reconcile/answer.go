package reconcile

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/codec"
	"github.com/idem-go/idempotency/idem/protocol"
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

// CompletedWith answers that the operation took effect as a whole, and that its handler would
// have returned out: steps that are not recorded never run. Of an operation that was interrupted
// in a step, say what the step did with [ContinueWith]. Out must be the handler's result type: only
// the encoding is checked, as [Resolve] does. A result that cannot be encoded is escalated, and so
// does an operation that has failed and is being undone, or has been: see
// [Resolution.CompensatedManually].
func CompletedWith[Out any](out Out) Answer {
	result, err := Encode(out)
	return Answer{kind: resolved, res: Resolution{To: idem.Completed, Result: &result}, err: err}
}

// CompletedWithEncoded is CompletedWith for a result that is encoded already, such as a
// response by the Encode method of its idemhttp.Contract. A refusal is like [FailedWith]: if steps
// have compensations that have not run, the question is escalated.
func CompletedWithEncoded(result protocol.Encoded) Answer {
	return Answer{kind: resolved, res: Resolution{To: idem.Completed, Result: &result}}
}

// CompletedWithoutResult answers that the operation took effect and that its result is not
// known: later calls get [idem.ErrOutcomeUnavailable].
func CompletedWithoutResult() Answer {
	return Answer{kind: resolved, res: Resolution{To: idem.Completed}}
}

// FailedWith answers that the operation has failed for good. If steps have compensations
// that have not run, the question is escalated, and operators must undo them. An interrupted step with a
// compensation is one of them, since it may have taken effect. Where it is that step that has
// failed, answer [ContinueWith] with FailedWith for it: the next attempt gets its failure, undoes
// the other steps and fails.
func FailedWith(f idem.Failure) Answer {
	return Answer{kind: resolved, res: Resolution{To: idem.Failed, Failure: &f}}
}

// NotExecuted answers that the operation, or a step of [ContinueWith], had no effect and that
// none can follow: the next call runs the handler again. It is no answer about a record with
// interrupted steps, which must be named: it is escalated. The answer does not count while the
// parked attempt may still be running; the probe is then asked once more after that.
func NotExecuted() Answer { return Answer{kind: resolved, res: Resolution{To: idem.Released}} }

// ContinueWith answers what became of the steps that were interrupted, by name, as
// [Resolution.Steps] says: the next call gets it as their outcomes and goes on with the steps
// after them. Nothing else of the operation may have taken effect without being recorded. As
// with NotExecuted, it does not count while the parked attempt may still be running. Without
// a step it is no answer, and the question is escalated.
func ContinueWith(steps map[string]Answer) Answer {
	if steps == nil {
		steps = map[string]Answer{} // nil would say that nothing was executed
	}
	return Answer{kind: resolved, res: Resolution{To: idem.Released, Steps: steps}}
}

// asStep says why the answer cannot be that about a step.
func (a Answer) asStep() error {
	switch {
	case a.kind != resolved:
		return errors.New("it is no outcome: use CompletedWith, CompletedWithoutResult, FailedWith or NotExecuted")
	case a.err != nil:
		return a.err
	case len(a.res.Steps) > 0:
		return errors.New("steps have no steps")
	case a.res.Ref != "":
		return errors.New("it has a reference, which a record has one of: give it with the resolution")
	case a.res.Result != nil && a.res.Result.Codec != "":
		return errors.New("its result is " + a.res.Result.Codec + ", and later attempts read JSON: use CompletedWith")
	}
	return a.res.check()
}

// step is the write of the answer as that about a step.
func (a Answer) step(name string) protocol.StepWrite {
	w := protocol.StepWrite{Name: name, Failure: a.res.Failure}
	switch {
	case a.res.Result != nil:
		w.Result = a.res.Result.Body
	case a.res.To == idem.Completed:
		w.Omitted, w.Failure = true, &idem.Failure{Message: "it took effect, and its result is not known"}
	}
	return w
}

// verdict is the answer as that about a step, for the audit.
func (a Answer) verdict() protocol.StepVerdict {
	switch {
	case a.res.To == idem.Failed:
		return protocol.StepFailed
	case a.res.To == idem.Released:
		return protocol.StepNotExecuted
	case a.res.Result == nil:
		return protocol.StepWithoutResult
	}
	return protocol.StepTookEffect
}

// verdicts are those of the resolution on the record's steps; nil if there are none.
func verdicts(rec *idem.Record, res Resolution) map[string]protocol.StepVerdict {
	all := map[string]protocol.StepVerdict{}
	for name, a := range res.Steps {
		all[name] = a.verdict()
	}
	for _, name := range toUndo(rec, res) {
		all[name] = protocol.StepUndone
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// StillUnknown answers that the provider does not know yet, and after what time to ask
// again, [Operation.EscalateAfter] at most. Zero leaves the time to the sweep.
func StillUnknown(after time.Duration) Answer { return Answer{after: max(after, 0)} }

// CannotBeKnown answers that it is no use to ask again: the question is escalated now, with
// the reason.
func CannotBeKnown(reason string) Answer { return Answer{kind: cannotBeKnown, reason: reason} }

// WithRef returns the answer with the provider's name for the effect, which the record
// keeps with an outcome.
func (a Answer) WithRef(ref string) Answer {
	a.res.Ref = ref
	return a
}

// Encode makes of a handler's result what [idem.Do] records of it. A result that later calls
// could not read is an error.
func Encode[Out any](out Out) (protocol.Encoded, error) {
	if err := idem.CheckResultType(reflect.TypeFor[Out]()); err != nil {
		return protocol.Encoded{}, err
	}
	var back Out
	body, err := codec.Through(out, &back)
	if err != nil {
		return protocol.Encoded{}, fmt.Errorf("idem: the result cannot be recorded: %w", err)
	}
	return protocol.Encoded{Body: body}, nil
}
