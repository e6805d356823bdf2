package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

var errStepRuns = errors.New("it still runs: call Abort once it has returned")

// compensation undoes a step's result.
type compensation struct {
	step *step
	of   tried
}

// Abort drops the [Unit] of work and undoes the operation's steps so far, as a [Permanent] error
// does, for handlers that answer with a result of their own. cause is recorded where a step is
// undone. Steps that have no outcome yet are refused from then on, in later attempts too, with cause
// as a [*RecordedError]. The unit commits only if [SetCompleted] is called after Abort.
//
// Abort returns nil if nothing is left to undo, a [*StepInterruptedError] while an [AtMostOnce] step is
// open or one with a compensation runs, and otherwise the error of a compensation, which the handler
// should return: while something is left to undo the attempt has no outcome. Outside an operation,
// inside a step and without a cause it returns a [*ConfigError].
func Abort(ctx context.Context, cause error) error {
	a := attemptOf(ctx)
	switch {
	case a == nil:
		return configError("Abort", "the context is not a handler's: pass the context that the handler was given")
	case stepOf(ctx) != "":
		return configError("Abort", "it is inside a step: call it from the handler")
	case cause == nil:
		return configError("Abort", "the cause is nil: say why the operation fails")
	case !a.journal.beginUndo():
		return configError("Abort", "the handler has returned: call it from the handler")
	}
	defer a.journal.endUndo()
	a.says.CompareAndSwap(int32(ClassCompleted), int32(ClassDefault)) // the last word counts
	return border(a.compensate(ctx, cause))
}

// compensateBy remembers how to undo a step that is done.
func (j *journal) compensateBy(s *step, t tried) {
	if s.opts.compensate == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.undo = append(j.undo, compensation{s, t})
}

// undone returns why the operation is being undone; nil if it is not.
func (j *journal) undone() *Failure { return locked(j, func() *Failure { return j.cause }) }

// beginUndoing says that the operation is being undone from now on. It returns an error
// while a step is open, or runs whose outcome counts for undoing. Nothing is undone
// across such a step, nor is the mark written, after which no attempt would run the step
// again and learn what it did. What is left to undo is undone once it is settled.
func (j *journal) beginUndoing(cause error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cause == nil {
		j.cause = failureOf(cause)
	}
	for name := range j.forward {
		return &StepInterruptedError{Name: name, Err: errStepRuns}
	}
	if open := j.opened(); open != nil {
		return open
	}
	return nil
}

// compensate undoes the steps in reverse order, each recorded as a step. The first
// write is a mark, by which a later attempt continues to undo and does not run forward.
func (a *attempt) compensate(ctx context.Context, cause error) error {
	j := &a.journal
	end, err := j.undoAlone(ctx)
	if err != nil {
		return err
	}
	defer end()
	// Nothing new runs forward from here on, and the operation has no outcome before all
	// is undone: what cannot be now, and what runs already, is left to the attempt's end.
	begun := j.beginUndoing(cause)
	if err := j.stopped(); err != nil {
		return err // the mark may be missing, or what else is noted here
	}
	todo, err := j.compensations()
	switch {
	case err != nil:
		j.park()
		return err
	case begun != nil || len(todo) == 0:
		return begun
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !j.marked() {
		if err := j.write(ctx, a, &protocol.StepWrite{Name: compensating, Failure: j.undone()}); err != nil {
			return err
		}
	}
	for _, c := range todo {
		if err := j.stopped(); err != nil {
			return err
		}
		if err := c.run(ctx); err != nil {
			return j.notUndone(c, err)
		}
		name := undoing + c.step.name
		if err := j.write(ctx, a, &protocol.StepWrite{Name: name, Result: []byte("null")}); err != nil {
			return err
		}
		a.notifyStep(ctx, notice.Compensated, c.step.name, nil)
	}
	return nil
}

// undoAlone lets one goroutine undo at a time. A compensation that calls Abort with the
// handler's context waits here for itself: it cannot be distinguished from another goroutine.
func (j *journal) undoAlone(ctx context.Context) (end func(), err error) {
	j.mu.Lock()
	if j.undoing == nil {
		j.undoing = make(chan struct{}, 1)
	}
	undoing := j.undoing
	j.mu.Unlock()
	end = func() { <-undoing }
	select {
	case undoing <- struct{}{}:
		return end, nil // also where the context has ended, which is for compensate to judge
	default:
	}
	select {
	case undoing <- struct{}{}:
		return end, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("idem: another Abort goes on; a compensation must not call Abort: %w", context.Cause(ctx))
	}
}

func (j *journal) notUndone(c compensation, err error) error {
	err = fmt.Errorf("idem: the compensation of step %q failed: %w", c.step.name, err)
	if classOf(err) == ClassFailed {
		j.park()
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
		err := s.opts.compensate(ctx, c.of.raw)
		if err == nil || classOf(err) == ClassFailed || !s.opts.retry.wait(ctx, n) {
			return err
		}
	}
}

// compensations returns what is left to undo, the latest first. A recorded step
// that has a compensation which this attempt does not know cannot be undone.
func (j *journal) compensations() ([]compensation, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := map[string]bool{}
	var todo []compensation
	var errs []error
	for _, c := range slices.Backward(j.undo) {
		known[c.step.name] = true
		if _, done := j.known[undoing+c.step.name]; done {
			continue
		}
		if c.of.lost != nil {
			errs = append(errs, fmt.Errorf("idem: step %q cannot be undone, its result could not be kept: undo it by hand, "+
				"then resolve the record", c.step.name))
		}
		todo = append(todo, c)
	}
	for name, s := range j.known {
		if _, done := j.known[undoing+name]; s.NeedsCompensation() && s.Done() && !done && !known[name] {
			errs = append(errs, fmt.Errorf("idem: step %q cannot be undone: this attempt did not reach it", name))
		}
	}
	return todo, errors.Join(errs...)
}

// marked reports whether the record says that the operation is being undone.
func (j *journal) marked() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.known[compensating]
	return ok
}

// beginUndo counts a call of Abort in. It returns false once the handler has
// returned.
func (j *journal) beginUndo() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.undoers++
		j.aborts = true
	}
	return !j.closed
}

func (j *journal) endUndo() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.undoers--
}

func (j *journal) park() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.parks = true
}
