package idem

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem/internal/codec"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	maxStepName = 100
	// ownSteps starts the names of steps that the engine itself records.
	ownSteps = "idem:"
	// compensating marks that the operation fails and is being undone.
	compensating = protocol.CompensatingStep
	// undoing starts the name of a step's compensation.
	undoing = protocol.UndoingPrefix
)

type stepKey struct{}

// step is one call of Step.
type step struct {
	ctx  context.Context
	name string
	a    *attempt
	opts stepOptions
	// empty says that it has no result: none can be missing.
	empty bool
}

// newStep finds the attempt of the step and checks everything that can be checked
// before anything runs.
func newStep(ctx context.Context, name string, result reflect.Type, o stepOptions) (*step, error) {
	s := &step{ctx: ctx, name: name, a: attemptOf(ctx), opts: o}
	switch {
	case s.a == nil:
		return nil, s.bad("the context is not a handler's: pass the context that the handler was given")
	case s.a.atomic():
		return nil, s.bad("the operation is in atomic mode, which takes no claim to record a step under: use idem.Reserved")
	case stepOf(ctx) != "":
		return nil, s.bad("it is inside step %q: steps do not nest, call it from the handler", stepOf(ctx))
	case name == "":
		return nil, s.bad("the name is empty: give the step a name that is the same in every attempt, such as \"charge\"")
	case len(name) > maxStepName:
		return nil, s.bad("the name has %d bytes: use at most %d", len(name), maxStepName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return nil, s.bad("the name has control characters or is not valid UTF-8")
	case strings.HasPrefix(name, ownSteps):
		return nil, s.bad("names that begin with %q are the engine's own", ownSteps)
	}
	if err := s.a.engine().traits.Lossy; err != nil && (o.semantics == AtMostOnce || o.compensate != nil) && !s.a.shadow {
		return nil, err
	}
	if problem := o.problem(); problem != "" {
		return nil, s.bad("%s", problem)
	}
	s.empty = result == reflect.TypeFor[struct{}]()
	if o.interrupted != nil && s.a.key.op.Repeat != Repeatable {
		return nil, s.bad("Interrupted is set, and operation %q is not repeatable: after a crash it is parked, and no "+
			"call runs that could ask. "+
			"Declare it idem.Repeatable, which is right for an effect in a step of idem.AtMostOnce, or leave Interrupted out",
			s.a.key.op.Name)
	}
	return s, codec.CheckResult(result)
}

// problem is what contradicts itself in the options, with what to do.
func (o *stepOptions) problem() string {
	switch {
	case o.semantics > AtMostOnce:
		return fmt.Sprintf("Semantics is %d: use idem.AtLeastOnce or idem.AtMostOnce", o.semantics)
	case o.reference != "" && o.semantics != AtMostOnce:
		return "Reference is written with the begin mark of a step of idem.AtMostOnce: in others call idem.SetReference"
	case referenceProblem(o.reference) != "":
		return referenceProblem(o.reference)
	case o.interrupted != nil && o.semantics != AtMostOnce:
		return "Interrupted is for steps of idem.AtMostOnce: others just run again"
	case o.interrupted == nil && o.notFoundFinalAfter != 0:
		return "NotFoundFinalAfter has no meaning without Interrupted: set that too, or leave both out"
	case o.interrupted != nil && o.notFoundFinalAfter == 0:
		return "NotFoundFinalAfter is missing next to Interrupted: say from when on \"not found\" is conclusive, " +
			"such as 10*time.Minute, or idem.Immediately"
	case o.notFoundFinalAfter != Immediately && o.notFoundFinalAfter < 0:
		return fmt.Sprintf("NotFoundFinalAfter is %v: it cannot be negative", o.notFoundFinalAfter)
	case o.notFoundFinalAfter > 0 && o.notFoundFinalAfter < time.Millisecond:
		return fmt.Sprintf("NotFoundFinalAfter is %v: give it with its unit, such as 10*time.Minute", o.notFoundFinalAfter)
	}
	return o.retry.problem()
}

// insideStep marks the context of a step's function.
type insideStep struct {
	a    *attempt
	name string
}

// stepOf returns the step that the context is inside of. An operation that is run
// from within another one's step is not inside that step.
func stepOf(ctx context.Context) string {
	in, _ := ctx.Value(stepKey{}).(insideStep)
	if in.a != attemptOf(ctx) {
		return ""
	}
	return in.name
}

func (s *step) bad(format string, args ...any) error {
	return configError(fmt.Sprintf("step %q", s.name), format, args...)
}

func (s *step) halt(err error) error { return s.a.journal.halt(s.a.running.Load(), err) }

// do gives the step's recorded outcome, or runs it and records one. The result goes to
// read, which decodes it.
func (s *step) do(fn func(context.Context) (tried, error), read func([]byte) error) error {
	known, err := s.a.journal.enter(s)
	if err != nil {
		return err
	}
	s.a.signs.Store(true)
	defer s.a.journal.leave(s.name)
	if ref := s.opts.reference; ref != "" && known.Write != "" {
		s.a.reference.say(ref) // an earlier attempt did, this one may have said another since
	}
	if known.Write != "" && known.Done() {
		return s.replay(known, read)
	}
	raw, err := s.run(known, fn)
	if err != nil {
		return err
	}
	if err = read(raw); err != nil {
		return s.unreadable(known, err)
	}
	return nil
}

// run closes a step that an earlier attempt began, or runs it.
func (s *step) run(known protocol.RecordedStep, fn func(context.Context) (tried, error)) ([]byte, error) {
	if err := s.a.journal.refuses(); err != nil && !known.Begun {
		return nil, err
	}
	if s.ctx.Err() != nil {
		return nil, context.Cause(s.ctx)
	}
	// A mark holds, whatever the step has been declared as since.
	if known.Begun {
		if raw, again, err := s.interrupted(known); !again {
			return raw, err
		}
	}
	if err := s.a.journal.reserve(s); err != nil {
		return nil, err
	}
	if s.opts.semantics == AtMostOnce {
		return s.once(fn)
	}
	t, err := s.try(fn)
	return s.recordOutcome(t, err)
}

// once runs the function of an at-most-once step, again only after a try that had no
// effect. Each try has a begin mark with a time of its own. A try that does not begin is
// no outcome of the step.
func (s *step) once(fn func(context.Context) (tried, error)) ([]byte, error) {
	ctx := s.inside(s.name)
	for n := 1; ; n++ {
		if err := s.begin(); err != nil {
			return nil, err
		}
		t, err := fn(ctx)
		again := classOf(err) == ClassNotExecuted && s.opts.retry.wait(ctx, n)
		raw, err := s.recordOutcome(t, err)
		if !again || classOf(err) != ClassNotExecuted {
			return raw, err
		}
	}
}

// begin writes the begin mark. Where it returns nil the function runs.
func (s *step) begin() error {
	j := &s.a.journal
	if err := j.refuses(); err != nil {
		return err
	}
	if err := s.writeMark(); err != nil {
		return err
	}
	var late error
	switch {
	case s.ctx.Err() != nil:
		late = context.Cause(s.ctx)
	case j.isOver():
		late = s.bad("the handler has returned: wait for steps before")
	default:
		return nil
	}
	// Time ran out while the mark was written: nothing was executed.
	_, err := s.recordOutcome(tried{}, NotExecuted(late))
	return Unmark(err)
}

// writeMark writes the begin mark, with the step's reference if that is new.
func (s *step) writeMark() error {
	// A resolver of an interrupted step must know that it has to be undone.
	w := &protocol.StepWrite{Name: s.name, Begin: true, Compensates: s.opts.compensate != nil}
	ref, r := s.opts.reference, &s.a.reference
	if ref == "" {
		return s.a.journal.write(s.ctx, s.a, w)
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	if has, _ := r.has(ref); !has {
		w.Ref = ref
	}
	if err := s.a.journal.write(s.ctx, s.a, w); err != nil {
		if w.Ref != "" {
			r.unanswered(true) // or refused, which costs nothing to take for it
		}
		return err
	}
	if r.say(ref); w.Ref != "" {
		r.landed(ref, w.Write)
	}
	return nil
}

// replay gives what is recorded of the step. A result from a resolution becomes the attempt's own
// before anything uses it: from then on it cannot be replaced.
func (s *step) replay(known protocol.RecordedStep, read func([]byte) error) error {
	s.notify(notice.StepReplayed, nil)
	switch {
	case known.Omitted && known.FromResolution && !s.empty && s.opts.compensate != nil:
		// The operator or probe may still find the result that the compensation needs.
		return s.rejectResolution(Unmark(s.unavailable(known.Failure)))
	case known.Omitted && known.FromResolution:
		if err := s.useResolution(); err != nil {
			return err
		}
	}
	switch {
	case known.Omitted && s.empty:
		s.a.journal.compensateBy(s, tried{raw: []byte("{}")})
		return nil
	case known.Omitted:
		err := s.unavailable(known.Failure)
		s.a.journal.compensateBy(s, tried{lost: err})
		return err
	case known.Failure != nil:
		return Permanent(&RecordedError{*known.Failure})
	}
	rec := s.a.rec
	// Needed to undo the step too, so whether or not the caller has been cancelled.
	ctx, cancel := s.a.running.Load().x.finishing(s.ctx, known.Body.Stored)
	defer cancel()
	raw, err := s.a.engine().store.StepResult(ctx, &rec, s.name)
	switch {
	case errors.Is(err, ErrRecordUnreadable):
		return s.unreadable(known, fmt.Errorf("idem: the result of step %q cannot be read: %w", s.name, err))
	case err != nil:
		return s.halt(fmt.Errorf("idem: the result of step %q cannot be read: %w", s.name, err))
	}
	if err = read(raw); err != nil {
		return s.unreadable(known, err)
	}
	if known.FromResolution {
		if err = s.useResolution(); err != nil {
			return err
		}
	}
	s.a.journal.compensateBy(s, tried{raw: raw})
	return nil
}

// useResolution makes what a resolution has recorded of the step the attempt's own.
func (s *step) useResolution() error {
	return s.a.journal.write(s.ctx, s.a, &protocol.StepWrite{Name: s.name, Read: true})
}

// unreadable stops the operation at a recorded result that does not fit. One that an attempt has
// recorded or read is read by its code, which a later attempt may be.
func (s *step) unreadable(known protocol.RecordedStep, err error) error {
	s.notify(notice.Unreadable, err)
	if known.FromResolution && known.Done() {
		return s.rejectResolution(err)
	}
	return s.halt(err)
}

// rejectResolution stops the operation at what a resolution has recorded of the step and this
// attempt cannot go on with. Nothing has used it: the step is an interrupted one again.
func (s *step) rejectResolution(err error) error {
	if wErr := s.a.journal.write(s.ctx, s.a, &protocol.StepWrite{Name: s.name, Unread: true}); wErr != nil {
		return wErr
	}
	return s.halt(err)
}

// unavailable describes, as it is recorded, why a result could not be kept.
func unavailable(why error) *Failure {
	return &Failure{Message: textOf(why, why.Error), Type: typeName(why)}
}

func (s *step) unavailable(f *Failure) error {
	reason := ""
	if f != nil {
		reason = f.Message
	}
	return Permanent(&StepUnavailableError{Name: s.name, Reason: reason})
}

// interrupted asks what became of a step that an earlier attempt began. again says
// that it had no effect, which is recorded.
func (s *step) interrupted(known protocol.RecordedStep) (raw []byte, again bool, err error) {
	s.notify(notice.StepInterrupted, nil)
	if s.opts.interrupted == nil || known.FromResolution {
		// Only operators replace a verdict that no code could read.
		return nil, false, s.a.journal.interrupted(&StepInterruptedError{Name: s.name})
	}
	asked := s.a.engine().now() // an answer says what was so then
	t, err := s.opts.interrupted(s.inside(s.name), known.BegunAt)
	switch {
	case err == nil || classOf(err) == ClassFailed:
		raw, err = s.recordOutcome(t, err)
		return raw, false, err
	case classOf(err) == ClassNotExecuted:
		if early := s.tooEarly(known, asked, err); early != nil {
			return nil, false, s.a.journal.interrupted(early)
		}
		// Recorded, so that the function, if it runs, has a mark with a time of its own.
		if _, sErr := s.recordOutcome(tried{}, err); classOf(sErr) != ClassNotExecuted {
			return nil, false, sErr
		}
		return nil, true, nil
	}
	return nil, false, s.a.journal.interrupted(&StepInterruptedError{Name: s.name, Err: err})
}

// tooEarly says that the other system may come to know the step yet.
func (s *step) tooEarly(known protocol.RecordedStep, asked time.Time, err error) *StepInterruptedError {
	if s.opts.notFoundFinalAfter == Immediately {
		return nil
	}
	if known.BegunAt.IsZero() {
		return &StepInterruptedError{Name: s.name, Err: fmt.Errorf("its begin mark does not say when it began: %w", err)}
	}
	proof := known.BegunAt.Add(s.opts.notFoundFinalAfter + s.a.engine().opts.Margin)
	if !asked.Before(proof) {
		return nil
	}
	return &StepInterruptedError{Name: s.name, Err: err, RetryAt: proof}
}

// recordOutcome records how the step's function ended, if it is the step's outcome.
func (s *step) recordOutcome(t tried, err error) ([]byte, error) {
	w := &protocol.StepWrite{Name: s.name}
	switch {
	case err == nil:
		w.Result, w.Compensates = t.raw, s.opts.compensate != nil
		if t.lost != nil {
			loseResult(w, t.lost)
		}
	case classOf(err) == ClassFailed:
		w.Failure = failureOf(err)
	case classOf(err) == ClassNotExecuted && s.a.journal.begun(s.name):
		w.NotExecuted = true
	default:
		return nil, err
	}
	if wErr := s.a.journal.write(s.ctx, s.a, w); wErr != nil {
		return nil, wErr
	}
	if w.Omitted && !s.empty {
		err = s.unavailable(w.Failure)
		t.lost = err
	}
	s.notify(notice.StepRecorded, err)
	if !w.NotExecuted && (w.Failure == nil || w.Omitted) {
		s.a.journal.compensateBy(s, t)
	}
	return t.raw, err
}

// loseResult makes of the write one that says that the step is done, without its result.
func loseResult(w *protocol.StepWrite, why error) {
	w.Result, w.Omitted, w.Failure = nil, true, unavailable(why)
}

// try runs the function of an at-least-once step, again where that is allowed.
func (s *step) try(fn func(context.Context) (tried, error)) (tried, error) {
	ctx := s.inside(s.name)
	for n := 1; ; n++ {
		t, err := fn(ctx)
		if err == nil {
			return t, nil
		}
		if classOf(err) == ClassFailed || !s.opts.retry.wait(ctx, n) {
			return tried{}, err
		}
	}
}

// inside is the context of the step's function, which gives it a token of its own.
func (s *step) inside(name string) context.Context {
	return context.WithValue(s.ctx, stepKey{}, insideStep{s.a, name})
}

func (s *step) notify(kind notice.Kind, err error) {
	s.a.notifyStep(s.ctx, kind, s.name, err)
}
