package idem

import (
	"context"
	"errors"
	"fmt"
	"github.com/idem-go/idempotency/idem/protocol"
	"slices"
)

// compensation undoes a step's result.
type compensation struct {
	step *step
	of   tried
}

// Compensate undoes the operation's steps so far, as a [Permanent] error of the
// handler does, or a response that is a refusal: for handlers that want to see it
// done before they answer, or fail with another response. cause is recorded as the
// reason. Steps that have no outcome yet are refused from now on, in later attempts
// too, with cause as a [*RecordedError]. The [Unit] of work is dropped, unless the
// handler says [SetCompleted].
//
// It returns nil if there is nothing left to undo, a [*StepInterruptedError] while an
// AtMostOnce step is open, since what comes before it must not be undone first, and
// what a compensation failed with otherwise: the handler should return that. Outside
// an operation, inside a step and without a cause it returns a [*ConfigError].
func Compensate(ctx context.Context, cause error) error {
	a := attemptOf(ctx)
	bad := func(problem string) error { return &ConfigError{"compensation", problem} }
	switch {
	case a == nil:
		return bad("the context is not a handler's: pass the context that the handler was given")
	case stepOf(ctx) != "":
		return bad("it is inside a step: call it from the handler")
	case cause == nil:
		return bad("the cause is nil: say why the operation fails")
	case !a.steps.beginUndo():
		return bad("the handler has returned: call it from the handler")
	}
	defer a.steps.endUndo()
	return border(a.compensate(ctx, cause))
}

// compensateBy remembers how to undo a step that is done.
func (st *steps) compensateBy(s *step, t tried) {
	if s.opts.compensate == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.undo = append(st.undo, compensation{s, t})
}

// undone returns why the operation is being undone; nil if it is not.
func (st *steps) undone() *Failure {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.cause
}

// beginUndoing says that the operation is being undone from now on, unless a step is
// open: nothing is undone across it.
func (st *steps) beginUndoing(cause error) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	name, _ := st.opened()
	for n := range st.starts {
		name = n
	}
	if name != "" {
		return &StepInterruptedError{Name: name}
	}
	if st.cause == nil {
		st.cause = failureOf(cause)
	}
	return nil
}

// compensate undoes the steps in reverse order, each recorded as a step. The first
// write is a mark, so that a later attempt goes on undoing and not forward.
func (a *attempt) compensate(ctx context.Context, cause error) error {
	st := &a.steps
	st.undoing.Lock()
	defer st.undoing.Unlock()
	todo, err := st.compensations()
	if err != nil {
		st.park()
		return err
	}
	if len(todo) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := st.beginUndoing(cause); err != nil {
		return err
	}
	if a.open {
		return st.undoUnrecorded(ctx, todo)
	}
	if !st.marked() {
		if err := st.record(ctx, a, &protocol.StepWrite{Name: compensating, Failure: st.undone()}); err != nil {
			return err
		}
	}
	for _, c := range todo {
		if err := c.run(ctx); err != nil {
			return st.notUndone(c, err)
		}
		name := undoing + c.step.name
		if err := st.record(ctx, a, &protocol.StepWrite{Name: name, Result: []byte("null")}); err != nil {
			return err
		}
		a.notifyStep(ctx, NoticeCompensated, c.step.name, nil)
	}
	return nil
}

// undoUnrecorded undoes steps that ran without a claim: nobody after this attempt
// knows of them.
func (st *steps) undoUnrecorded(ctx context.Context, todo []compensation) error {
	for _, c := range todo {
		if err := c.run(ctx); err != nil {
			return st.notUndone(c, err)
		}
		c.step.a.notifyStep(ctx, NoticeCompensated, c.step.name, nil)
		st.mu.Lock()
		st.undo = slices.DeleteFunc(st.undo, func(u compensation) bool { return u.step == c.step })
		st.mu.Unlock()
	}
	return nil
}

func (st *steps) notUndone(c compensation, err error) error {
	err = fmt.Errorf("idem: the compensation of step %q failed: %w", c.step.name, err)
	if classOf(err) == ClassFailed {
		st.park()
	}
	return err
}

func (c compensation) run(ctx context.Context) error {
	s := *c.step
	s.ctx = ctx
	s.opts.semantics = AtLeastOnce
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx = s.inside(undoing + s.name)
	for n := 1; ; n++ {
		err := s.opts.compensate.fn(ctx, c.of.raw)
		if err == nil || classOf(err) == ClassFailed || !s.opts.retry.wait(ctx, n) {
			return err
		}
	}
}

// compensations returns what is left to undo, the latest first. A recorded step
// that has a compensation which this attempt does not know cannot be undone.
func (st *steps) compensations() ([]compensation, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	known := map[string]bool{}
	var todo []compensation
	var errs []error
	for _, c := range slices.Backward(st.undo) {
		known[c.step.name] = true
		if _, done := st.known[undoing+c.step.name]; done {
			continue
		}
		if c.of.lost != nil {
			errs = append(errs, fmt.Errorf("idem: step %q cannot be undone, its result could not be kept: undo it by hand, then resolve the record", c.step.name))
		}
		todo = append(todo, c)
	}
	for name, s := range st.known {
		if _, done := st.known[undoing+name]; s.Compensates && !done && !known[name] {
			errs = append(errs, fmt.Errorf("idem: step %q cannot be undone: this attempt did not come by it", name))
		}
	}
	return todo, errors.Join(errs...)
}

// marked reports whether the record says that the operation is being undone.
func (st *steps) marked() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, ok := st.known[compensating]
	return ok
}

// beginUndo counts a call of Compensate in. It returns false once the handler has
// returned.
func (st *steps) beginUndo() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.over {
		st.undoers++
		st.byHand = true
	}
	return !st.over
}

func (st *steps) endUndo() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.undoers--
}

func (st *steps) park() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.parks = true
}
