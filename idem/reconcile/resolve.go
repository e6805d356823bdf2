package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Resolve records that the key's unknown operation completed with out, which later calls
// get. Out must be the handler's result type. Resolve cannot check that, because the record
// does not say which type it is. See [Reconciler.Resolve], which takes any resolution.
func Resolve[Out any](ctx context.Context, r *Reconciler, key idem.Key, out Out, by Change) error {
	if err := key.Err(); err != nil {
		return err
	}
	result, err := Encode(out)
	if err != nil {
		return err
	}
	return r.Resolve(ctx, key.ID(), Resolution{To: idem.Completed, Result: &result}, by)
}

// Resolve records the outcome of the unknown record with the id ([idem.Key.ID]). It
// replaces the owner: the parked attempt can change nothing any more. While the parked
// attempt may still be running, a resolution to Released is refused with [ErrTooEarly]. One
// that would forget steps which have not been undone gives [ErrNotUndone]. A record that is
// not unknown, or that another resolution has settled first, gives [ErrNotUnknown], an absent one
// [ErrNotFound]. A resolution that is refused changes nothing. One to Released must say in
// [Resolution.Steps] what became of each interrupted step: that the operation had no effect is no
// word about a step, which has sent a token of its own.
//
// A claim whose lease is over counts as unknown if its record says that no call may take it over:
// the operation is not repeatable, or the attempt was interrupted in an at-most-once step; or that
// no call does, but a worker: it was accepted for later, and the message may be lost. A
// record does not say how many attempts are allowed ([idem.Operation.MaxAttempts]), nor that
// the operation is declared not repeatable by now: such a claim gives [ErrNotUnknown] until a
// call or a sweep, which know the declaration, has parked it.
func (r *Reconciler) Resolve(ctx context.Context, id string, res Resolution, by Change) error {
	if err := errors.Join(res.checkWhole(), by.check()); err != nil {
		return err
	}
	if res.Replace && by.IfWrite == "" {
		return invalid("resolution", "Replace is set, and Change.IfWrite is empty: "+
			"set it to the Write of the record whose resolution this one replaces, or it may replace a later decision")
	}
	found := false
	return r.revise(ctx, id, by, func(rec *idem.Record) error {
		switch {
		case rec == nil:
			return fmt.Errorf("%w: %q", ErrNotFound, id)
		case res.Attempt == 0 && found: // there was no attempt, and nothing was found out about this one
			return fmt.Errorf("%w: a worker has claimed it since it was read", ErrNotUnknown)
		case res.Attempt == 0:
			res.Attempt, found = rec.Attempt, true // nothing was found out about a later one
		}
		return r.resolve(ctx, rec, res, by)
	})
}

// resolve records the outcome of the record as it was read.
func (r *Reconciler) resolve(ctx context.Context, rec *idem.Record, res Resolution, by Change) error {
	if err := r.refusal(rec, res, r.now()); err != nil {
		return err
	}
	s := r.settlement(rec, res, by)
	return again(ctx, func() error { // the retention of an outcome counts from the try that lands
		if !s.Ending.ExpiresAt.IsZero() {
			s.Ending.ExpiresAt = r.expiry(rec)
		}
		return r.store.Settle(ctx, r.now(), s)
	})
}

// refusal is why the record does not take the resolution; nil if it does.
func (r *Reconciler) refusal(rec *idem.Record, res Resolution, now time.Time) error {
	switch r.allows(rec, res, now) {
	case protocol.DoTooEarly:
		return fmt.Errorf("%w, which is over at %s", ErrTooEarly, rec.LeaseUntil.Add(r.opts.Margin).Format(time.RFC3339Nano))
	case protocol.DoRefuse:
		switch {
		case rec.Resolved && !res.Replace:
			return fmt.Errorf("%w: this one was resolved as %s before: set Resolution.Replace to replace that",
				ErrNotUnknown, rec.State)
		case res.Replace:
			return fmt.Errorf("%w: this one is %s by its attempt %d: a resolution can be replaced until an attempt has "+
				"claimed, from then on what the attempt records counts", ErrNotUnknown, rec.State, rec.Attempt)
		}
		return fmt.Errorf("%w: this one is %s", ErrNotUnknown, rec.State)
	}
	if res.Attempt != 0 && res.Attempt != rec.Attempt {
		return fmt.Errorf("%w: the resolution is about attempt %d, and the record is of attempt %d", ErrNotUnknown,
			res.Attempt, rec.Attempt)
	}
	if res.Result != nil && res.Result.Codec != rec.Codec {
		return invalid("resolution", "Result is %s, and later calls read %s: encode it with Encode, "+
			"or for an HTTP request with the contract's Encode method",
			cmp.Or(res.Result.Codec, "JSON"), cmp.Or(rec.Codec, "JSON"))
	}
	if err := misnamed(rec, res); err != nil {
		return err
	}
	if rec.State == idem.Released && res.To == idem.Released && resolvedBefore(rec, res) {
		other := "its steps that are not recorded run again, and if they must not"
		if steps := askable(rec); len(steps) > 0 {
			other = fmt.Sprintf("say something else of the steps %q in Resolution.Steps, or", steps)
		}
		return fmt.Errorf("%w: this one was released before, and nothing would change: %s resolve it to completed or failed",
			ErrNotUnknown, other)
	}
	switch undoing := res.To == idem.Completed && rec.Undoing(); {
	case !res.CompensatedManually && (undoing || len(toUndo(rec, res)) > 0):
		refused := &NotUndoneError{To: idem.Failed, Steps: notUndone(rec), Undone: owing(rec, true)}
		if undoing {
			refused.To = idem.Completed
		}
		return refused
	case res.CompensatedManually && !res.fails() && !undoing:
		return invalid("resolution",
			"CompensatedManually is set, and the operation is not being undone, nor is the result a failed one: "+
				"leave it out if it took effect, or resolve it to failed")
	}
	return nil
}

// askable lists the steps that a resolution may decide on: those that were interrupted, and
// those that the resolution it replaces has decided on.
func askable(rec *idem.Record) []string {
	return stepsOf(rec, func(name string, s protocol.RecordedStep) bool { return s.Begun || rec.StepResolved(name) })
}

// stepsOf lists those of the recorded steps that match, in the order of their names.
func stepsOf(rec *idem.Record, match func(name string, s protocol.RecordedStep) bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(rec.Steps)) {
		if match(name, rec.Steps[name]) {
			names = append(names, name)
		}
	}
	return names
}

// misnamed is what is wrong with the names of the steps that the resolution speaks of, and of
// those that it does not.
func misnamed(rec *idem.Record, res Resolution) error {
	if res.To != idem.Released {
		return nil
	}
	names := askable(rec)
	for _, name := range slices.Sorted(maps.Keys(res.Steps)) {
		step, recorded := rec.Steps[name]
		switch {
		case slices.Contains(names, name):
		case recorded && step.Done():
			return invalid("resolution", "Steps has %q, whose outcome is recorded: leave it out, and if it is wrong undo "+
				"by hand what followed, and resolve to failed", name)
		case rec.Resolved:
			return invalid("resolution", "Steps has %q, which the earlier resolution has removed, or which there never was: "+
				"nothing can be said of it any more, and the next call runs it. "+
				"Leave it out; if it took effect after all, its token is %s, resolve to completed or failed before that call",
				name, protocol.Token(rec.ID, name))
		default:
			return invalid("resolution", "Steps has %q, and the steps without outcome are %q: leave it out", name, names)
		}
	}
	for _, name := range names {
		if _, named := res.Steps[name]; !named {
			return fmt.Errorf("%w: step %q may have taken effect: ask about it with its own token %s, since it did not send "+
				"the operation's, and say in Resolution.Steps what became of it; a probe answers with ContinueWith",
				ErrStepsUnnamed, name, protocol.Token(rec.ID, name))
		}
	}
	return nil
}

// resolvedBefore reports whether a released record has all that the resolution would record.
func resolvedBefore(rec *idem.Record, res Resolution) bool {
	if res.Ref != rec.Ref && (res.Ref != "" || rec.RefWrite == rec.Owner) {
		return false
	}
	for _, name := range askable(rec) {
		a := res.Steps[name]
		if a.res.To == idem.Released {
			return false
		}
		w, have := a.step(name), rec.Steps[name]
		same := w.Omitted == have.Omitted && (w.Failure == nil) == (have.Failure == nil) &&
			(w.Failure == nil || *w.Failure == *have.Failure)
		// What is stored in another form may be another result.
		if !same || w.Failure == nil && (have.Body.Encoding != "" || !bytes.Equal(w.Result, have.Body.Data)) {
			return false
		}
	}
	return true
}

// allows says whether the record can be resolved so: DoApply, DoTooEarly or DoRefuse. A claim
// is no question while its attempt may run, nor if a call, and not a worker, may take it over.
func (r *Reconciler) allows(rec *idem.Record, res Resolution, now time.Time) protocol.Action {
	if rec.State == idem.InProgress && (!rec.Lapsed(now, r.opts.Margin) || rec.Repeat == idem.Repeatable &&
		!rec.Interrupted() && !rec.Accepted()) {
		return protocol.DoRefuse
	}
	ev := protocol.Event{Kind: protocol.EventResolve, Seen: rec.Write, To: res.To, Margin: r.opts.Margin,
		Again: res.Replace}
	return protocol.Next(rec, ev, now).Do
}

// again writes up to three times the same, as long as it is not known whether it has landed. If the record
// were read again instead, the own write would be taken for another one.
func again(ctx context.Context, write func() error) (err error) {
	for range 3 {
		err = write()
		failed, ok := errors.AsType[*idem.StoreError](err)
		if !ok || !failed.Ambiguous || ctx.Err() != nil {
			break
		}
	}
	return err
}

// isAnswer reports whether the store has answered what the record is.
func isAnswer(err error) bool {
	_, conflict := errors.AsType[*protocol.ConflictError](err)
	return conflict
}

func (r *Reconciler) settlement(rec *idem.Record, res Resolution, by Change) protocol.Settlement {
	s := protocol.Settlement{
		ID: rec.ID, Kind: protocol.EventResolve, Seen: rec.Write, Owner: newID(), Again: res.Replace, Sealed: rec.Sealed,
		Ending: protocol.Ending{State: res.To, Failure: res.Failure, Ref: res.Ref, ExpiresAt: r.expiry(rec)},
		Audit:  r.audit(rec, by, protocol.ChangeResolved, res.To, res.Ref),
	}
	s.Write = s.Owner
	if res.Result != nil {
		s.Ending.Result, s.Ending.ResponseVersion = res.Result.Body, res.Result.ResponseVersion
	}
	s.Ending.Omitted = res.To == idem.Completed && res.Result == nil
	kept, asked := 0, askable(rec)
	for name, step := range rec.Steps {
		s.LargeSteps = s.LargeSteps || step.Body.Parts > 0
		answer, named := res.Steps[name]
		switch {
		case !slices.Contains(asked, name):
			kept++
		case named && answer.res.To != idem.Released:
			w := answer.step(name)
			w.Compensates = step.Compensates
			s.Steps = append(s.Steps, w)
			kept++
		default:
			s.ClearSteps = append(s.ClearSteps, name)
		}
	}
	if res.To == idem.Completed && !res.CompensatedManually {
		for _, name := range notUndone(rec) {
			s.Steps = append(s.Steps, protocol.StepWrite{
				Name: name, Omitted: true, Compensates: true,
				Failure: &idem.Failure{Message: "a resolution to completed has not kept its result"},
			})
		}
	}
	if res.To == idem.Released && kept > 0 {
		s.Ending.ExpiresAt = time.Time{}
	}
	s.Audit.Steps = verdicts(rec, res)
	return s
}
