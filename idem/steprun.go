package idem

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxStepName = 100
	// ownSteps starts the names of steps that the engine itself records.
	ownSteps = "idem:"
	// compensating marks that the operation fails and is being undone.
	compensating = ownSteps + "compensating"
	// undoing starts the name of a step's compensation.
	undoing = ownSteps + "undo:"
	// largeStep is the size from which a store may keep a step's result beside the
	// record.
	largeStep = 1 << 10
)

type stepKey struct{}

// step is one call of Step.
type step struct {
	ctx  context.Context
	name string
	a    *attempt
	opts stepOptions
}

// newStep finds the attempt of the step and checks everything that can be checked
// before anything runs.
func newStep(ctx context.Context, name string, result reflect.Type, opts []StepOption) (*step, error) {
	s := &step{ctx: ctx, name: name, a: attemptOf(ctx)}
	for _, o := range opts {
		if o != nil {
			o.apply(&s.opts)
		}
	}
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
	case s.opts.semantics > AtMostOnce:
		return nil, s.bad("WithSemantics(%d): use idem.AtLeastOnce or idem.AtMostOnce", s.opts.semantics)
	case s.opts.retry.problem() != "":
		return nil, s.bad("%s", s.opts.retry.problem())
	}
	if c := s.opts.compensate; c != nil && (c.fn == nil || c.result != result) {
		return nil, s.bad("WithCompensation takes a %v: give it a function that takes the step's %v", c.result, result)
	}
	if c := s.opts.interrupted; c != nil && (c.fn == nil || c.result != result) {
		return nil, s.bad("WithInterrupted gives a %v: give it a function that gives the step's %v", c.result, result)
	}
	if s.opts.interrupted != nil && s.opts.semantics != AtMostOnce {
		return nil, s.bad("WithInterrupted is for steps of idem.AtMostOnce: others just run again")
	}
	return s, CheckResultType(result)
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
	return &ConfigError{What: fmt.Sprintf("step %q", s.name), Problem: fmt.Sprintf(format, args...)}
}

func (s *step) halt(err error) error { return s.a.steps.halt(s.a.running, err) }

// do gives the step's recorded outcome, or runs it and records one.
func (s *step) do(fn func(context.Context) ([]byte, error)) ([]byte, error) {
	known, err := s.a.steps.enter(s)
	if err != nil {
		return nil, err
	}
	defer s.a.steps.leave(s.name)
	if known.Write != "" && known.done() {
		return s.replay(known)
	}
	if f := s.a.steps.undone(); f != nil {
		// The operation fails: nothing new runs forward.
		return nil, Permanent(&RecordedError{*f})
	}
	if s.ctx.Err() != nil {
		return nil, context.Cause(s.ctx)
	}
	if s.a.open {
		if s.opts.semantics == AtMostOnce {
			// Not marked as NotExecuted: other steps may have run.
			return nil, &StoreError{Op: "step", Err: errors.New("the operation runs without a claim, under which an at-most-once step could be recorded")}
		}
		raw, err := s.try(fn)
		if err == nil {
			s.a.steps.compensateBy(s, raw)
		}
		return raw, err
	}
	// A mark holds, whatever the step has been declared as since.
	if known.Begun {
		raw, err := s.interrupted()
		if err == nil || !errors.Is(err, errRunAgain) {
			return raw, err
		}
	} else if s.opts.semantics == AtMostOnce {
		if err := s.a.steps.record(s.ctx, s.a, StepWrite{Name: s.name, Begin: true}); err != nil {
			return nil, err
		}
		if s.ctx.Err() != nil {
			// Time ran out over the mark: surely nothing was executed.
			_, err := s.settle(nil, NotExecuted(context.Cause(s.ctx)))
			return nil, unmark(err)
		}
	}
	raw, err := s.try(fn)
	return s.settle(raw, err)
}

func (s *step) replay(known RecordedStep) ([]byte, error) {
	s.notify(s.a.engine().obs.StepReplayed, nil)
	if known.Failure != nil {
		return nil, Permanent(&RecordedError{*known.Failure})
	}
	rec := s.a.rec
	// Needed to undo the step too, so whether or not the caller has been cancelled.
	ctx, cancel := s.a.running.plan.finishing(s.ctx, known.Body.Stored)
	defer cancel()
	raw, err := s.a.engine().store.StepResult(ctx, &rec, s.name)
	if err != nil {
		return nil, s.halt(fmt.Errorf("idem: the result of step %q cannot be read: %w", s.name, err))
	}
	s.a.steps.compensateBy(s, raw)
	return raw, nil
}

// errRunAgain says that an interrupted step surely had no effect.
var errRunAgain = errors.New("idem: the interrupted step had no effect")

func (s *step) interrupted() ([]byte, error) {
	s.notify(s.a.engine().obs.StepInterrupted, nil)
	if s.opts.interrupted == nil {
		return nil, &StepInterruptedError{Name: s.name}
	}
	raw, err := s.opts.interrupted.fn(s.inside(s.name))
	switch {
	case err == nil || classOf(err) == ClassFailed:
		return s.settle(raw, err)
	case classOf(err) == ClassNotExecuted:
		return nil, errRunAgain
	}
	return nil, &StepInterruptedError{Name: s.name, Err: err}
}

// settle records how the step's function ended, if it is the step's outcome.
func (s *step) settle(raw []byte, err error) ([]byte, error) {
	w := StepWrite{Name: s.name, Result: raw}
	switch {
	case err == nil:
		w.Compensates = s.opts.compensate != nil
	case classOf(err) == ClassFailed:
		w.Failure = failureOf(err)
	case classOf(err) == ClassNotExecuted && s.a.steps.begun(s.name):
		w.NotExecuted = true
	default:
		return nil, err
	}
	if wErr := s.a.steps.record(s.ctx, s.a, w); wErr != nil {
		return nil, wErr
	}
	s.notify(s.a.engine().obs.StepRecorded, err)
	if err == nil {
		s.a.steps.compensateBy(s, raw)
	}
	return raw, err
}

// try runs the function, again where that is allowed.
func (s *step) try(fn func(context.Context) ([]byte, error)) ([]byte, error) {
	ctx := s.inside(s.name)
	for n := 1; ; n++ {
		raw, err := fn(ctx)
		if err == nil {
			return raw, nil
		}
		class := classOf(err)
		if class == ClassFailed || s.opts.semantics == AtMostOnce && class != ClassNotExecuted || !s.opts.retry.wait(ctx, n) {
			return nil, err
		}
	}
}

// inside is the context of the step's function, which gives it a token of its own.
func (s *step) inside(name string) context.Context {
	return context.WithValue(s.ctx, stepKey{}, insideStep{s.a, name})
}

func (s *step) notify(f func(context.Context, Notice), err error) {
	s.a.notifyStep(s.ctx, f, s.name, err)
}
