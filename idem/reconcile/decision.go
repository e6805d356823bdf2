package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Decision is what an operator may decide about a record.
type Decision struct {
	// Change is what it does: [protocol.ChangeResolved], ChangeExtended or ChangeForgotten.
	Change protocol.Change `json:"change"`
	// To is the state that the record would have; [idem.Absent] if it is forgotten.
	To idem.State `json:"to,omitempty"`
	// Refused says why it is not possible now; empty if it is.
	Refused string `json:"refused,omitempty"`
	// Again says that it replaces an earlier resolution: set [Resolution.Replace].
	Again bool `json:"again,omitempty"`
	// Undo are the steps that must have been undone before, by their compensations or by hand: set
	// [Resolution.CompensatedManually].
	Undo []string `json:"undo,omitempty"`
	// Steps are those that [Resolution.Steps] must name, with what became of them.
	Steps []string `json:"steps,omitempty"`
	// Then is what the next call with the key and the same input would get.
	Then string `json:"then,omitempty"`
	// Caution says what the decision risks, or costs a caller; empty if there is nothing to say.
	Caution string `json:"caution,omitempty"`
	// Repeats says that the effect may take place a second time.
	Repeats bool `json:"repeats,omitempty"`
}

// Preview says what a resolution would do to the record now, with the steps and the result that
// it has. Refused says why [Reconciler.Resolve] would refuse it. Like Explain it makes no call.
func (r *Reconciler) Preview(rec *idem.Record, res Resolution) Decision {
	if err := res.checkWhole(); err != nil {
		return Decision{Change: protocol.ChangeResolved, To: res.To, Refused: problem(err)}
	}
	return r.resolving(rec, res, r.now())
}

// problem is what an error says, without the names of the code that says so.
func problem(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "idem: resolution: "), "reconcile: ")
}

// plainly is the resolution to a state with all that the record needs for it.
func plainly(rec *idem.Record, to idem.State) Resolution {
	res := Resolution{To: to}
	if rec == nil {
		return res
	}
	res.Replace = rec.Resolved
	switch to {
	case idem.Completed:
		res.Result, res.CompensatedManually = &protocol.Encoded{Codec: rec.Codec}, rec.Undoing()
	case idem.Failed:
		res.Failure, res.CompensatedManually = &idem.Failure{}, true
	case idem.Released:
		for _, name := range askable(rec) {
			if res.Steps == nil {
				res.Steps = map[string]Answer{}
			}
			res.Steps[name] = NotExecuted()
		}
	}
	return res
}

// notBefore says when an attempt no longer stands in the way of a resolution.
func (r *Reconciler) notBefore(rec *idem.Record, attempt string) string {
	return fmt.Sprintf("not before %s, when the lease and its margin are over: the %s attempt may still be running",
		rec.LeaseUntil.Add(r.opts.Margin).Format(time.RFC3339), attempt)
}

// resolving says what a resolution would do.
func (r *Reconciler) resolving(rec *idem.Record, res Resolution, now time.Time) Decision {
	d := Decision{Change: protocol.ChangeResolved, To: res.To}
	if rec == nil {
		d.Refused = "there is no record"
		return d
	}
	switch r.allows(rec, res, now) {
	case protocol.DoTooEarly:
		d.Refused = r.notBefore(rec, "parked")
		return d
	case protocol.DoRefuse:
		over := rec.LeaseUntil.Add(r.opts.Margin + time.Second)
		switch {
		case rec.Resolved:
			d.Refused = problem(r.refusal(rec, res, now))
		case rec.State == idem.InProgress && now.Before(over) && r.allows(rec, res, over) != protocol.DoRefuse:
			d.Refused = r.notBefore(rec, "current")
		default:
			d.Refused = fmt.Sprintf("only an unknown outcome can be resolved, and this one is %s", rec.State)
		}
		return d
	}
	d.Again = rec.Resolved
	if d.Undo = toUndo(rec, res); res.To == idem.Released {
		d.Steps = askable(rec)
	}
	if err := r.refusal(rec, res, now); err != nil {
		d.Refused = problem(err)
		return d
	}
	s := r.settlement(rec, res, Change{})
	after, err := s.Apply(rec, now)
	if err != nil {
		d.Refused = problem(err)
		return d
	}
	d.Then = r.gets(after, sameInput, now)
	d.Caution, d.Repeats = caution(rec, res, s.ClearSteps)
	switch {
	case res.To == idem.Completed && len(rec.Steps) > 0:
		d.Then += " Steps that are not recorded never run."
	case res.To == idem.Released && len(s.ClearSteps) > 0:
		d.Then += fmt.Sprintf(" It runs %s again.", strings.Join(slices.Sorted(slices.Values(s.ClearSteps)), ", "))
	}
	if res.To == idem.Released && !after.Open() {
		d.Then += " Until that call nothing runs, and no list has the record."
	}
	if res.To == idem.Released && rec.Ended() && rec.State != idem.Released {
		d.Then += " " + answered.of(rec)
	}
	var unchecked []string // steps whose results are given
	for _, step := range s.Steps {
		if step.Result != nil {
			unchecked = append(unchecked, step.Name)
		}
	}
	if slices.Sort(unchecked); len(unchecked) > 0 {
		d.Then += fmt.Sprintf(" The result of %s is recorded as given, and its form is not checked, since no record says "+
			"which type a step returns: the handler ignores a member that its type does not have, and reads a missing one "+
			"and null as empty.", strings.Join(unchecked, ", "))
	}
	return d
}

// answered is who does not call again after a release, since it has got the outcome that is replaced.
var answered = reply{"A client that got the earlier answer does not ask again: inform it.",
	"A message that was acknowledged is not delivered again: have it sent again."}

// secondTime is what happens if an effect that the provider has takes place again.
const secondTime = "If the provider has it already, it happens twice, such as a second charge or a second refund."

// caution says what a resolution risks, and whether that is a second effect, of steps that run again or
// of the handler.
func caution(rec *idem.Record, res Resolution, again []string) (text string, repeats bool) {
	const confirmed = " only if the provider has confirmed that it has no such operation, and that none can follow."
	switch {
	case res.To == idem.Failed && rec.Codec == httpCodec:
		return "For a refusal with a status of its own, such as 402, resolve to completed with that response.", false
	case res.To != idem.Released || rec.Undoing():
		return "", false
	case len(again) > 0: // steps that run at most once, also of what is repeatable
		return fmt.Sprintf("%s runs again. %s Record it as not executed"+confirmed,
			strings.Join(slices.Sorted(slices.Values(again)), ", "), secondTime), true
	case rec.Repeat == protocol.Repeatable:
		return "", false
	case len(res.Steps) > 0: // it goes on after what the steps did
		return "The handler runs again: what it does outside of its steps may happen twice.", false
	}
	text = "The handler runs again. " + secondTime + " Release it" + confirmed
	if rec.Resolved && rec.Ended() {
		reference := ""
		if rec.Ref != "" {
			reference = ", with the reference " + rec.Ref
		}
		text = fmt.Sprintf("It was recorded as %s before%s. %s", rec.State, reference, text)
	}
	return text, true
}

// extending says what keeping the record for longer would do.
func (r *Reconciler) extending(rec *idem.Record, now time.Time) Decision {
	d := Decision{Change: protocol.ChangeExtended}
	if rec == nil {
		d.Refused = "there is no record"
		return d
	}
	d.To = rec.State
	switch {
	case r.prolongs(rec, never) == protocol.DoApply:
		d.Then = r.gets(rec, sameInput, now)
	case !rec.Ended():
		d.Refused = fmt.Sprintf("only a record that has ended can be kept for longer, and it is %s", rec.State)
	case rec.Expired(now):
		d.Refused = "it has expired"
	default:
		d.Refused = "it never expires"
	}
	return d
}

// forgetting says what removing the record would do.
func (r *Reconciler) forgetting(rec *idem.Record, now time.Time) Decision {
	d := Decision{Change: protocol.ChangeForgotten}
	switch {
	case rec == nil:
		d.Refused = "there is no record"
	case !r.forgets(rec):
		d.Refused = fmt.Sprintf("%s, and it is %s", problem(ErrOpen), rec.State)
	default:
		d.Then = r.gets(nil, sameInput, now)
		if d.Repeats = rec.State == idem.Completed; d.Repeats {
			d.Caution = "The operation took effect. A later call with the key runs the handler again. " + secondTime
		}
	}
	return d
}
