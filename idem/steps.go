package idem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// steps is what an attempt knows of its operation's steps. Steps may run side by
// side.
type steps struct {
	mu      sync.Mutex
	known   map[string]RecordedStep // those of earlier attempts, and what this one wrote
	entered map[string]bool         // names that this attempt has come by, true while it is inside
	undo    []compensation          // in the order in which the results came
	halted  error                   // stops the operation
	large   bool                    // a result may lie beside the record
	parks   bool                    // somebody must look
	over    bool                    // the handler has returned
	undoing sync.Mutex              // one goroutine undoes at a time
	undoers int                     // calls of Compensate on their way
}

// enter registers a step and returns what is known of it.
func (st *steps) enter(s *step) (RecordedStep, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over || s.a.running == nil {
		return RecordedStep{}, s.bad("the handler has returned: wait for steps before")
	}
	if st.halted != nil {
		return RecordedStep{}, st.halted
	}
	if _, twice := st.entered[s.name]; twice {
		return RecordedStep{}, s.bad("the name is used twice in one attempt: number the steps of a loop, such as \"ship-1\"")
	}
	if st.entered == nil {
		st.entered = map[string]bool{}
	}
	st.entered[s.name] = true
	return st.known[s.name], nil
}

// leave says that a step that was entered has returned.
func (st *steps) leave(name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.entered[name] = false
}

// halt stops the operation: its context ends, no further step runs, and it ends by
// its declaration. The first reason stays.
func (st *steps) halt(l *lease, err error) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.halted == nil {
		st.halted = err
		l.cancel(err)
	}
	return st.halted
}

// record writes a step. What cannot be shown to have been written stops the
// operation. It does not go by the caller's cancellation, which would leave the
// write in doubt for nothing: a step whose sibling failed is one that often meets it.
func (st *steps) record(ctx context.Context, a *attempt, w StepWrite) error {
	st.mu.Lock()
	halted, first := st.halted, len(st.known) == 0
	if halted == nil && w.Begin && st.over {
		halted = fmt.Errorf("idem: step %q does not begin: the handler has returned", w.Name)
	}
	st.mu.Unlock()
	if halted != nil {
		return halted
	}
	l := a.running
	w.First = first
	err := l.send(ctx, &w)
	var conflict *ConflictError
	switch {
	case err == nil:
	case errors.As(err, &conflict):
		return st.halt(l, fmt.Errorf("%w: step %q is not recorded", ErrLeaseLost, w.Name))
	default:
		err = fmt.Errorf("idem: step %q is not recorded, the operation stops: %w", w.Name, err)
		if w.Begin {
			// The function has not run and will not, whether the mark landed or not. Taken
			// back, it keeps nobody waiting; if that fails too, the next attempt looks.
			back := StepWrite{Name: w.Name, NotExecuted: true, First: first}
			if l.send(ctx, &back) == nil {
				st.put(w.Name, back)
			}
		} else {
			// Recorded or not: the next attempt sees, and may know how to settle it.
			st.put(w.Name, w)
		}
		return st.halt(l, err)
	}
	st.put(w.Name, w)
	if w.Begin {
		l.watch()
	}
	return nil
}

// send makes one call to the store.
func (l *lease) send(ctx context.Context, w *StepWrite) error {
	e := l.plan.engine
	w.ID, w.Owner, w.Write = l.a.rec.ID, l.a.rec.Owner, l.a.writeID()
	ctx, cancel := l.plan.finishing(ctx, len(w.Result))
	defer cancel()
	return e.store.RecordStep(ctx, e.now(), *w)
}

// put notes what has been recorded.
func (st *steps) put(name string, w StepWrite) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.known == nil {
		st.known = map[string]RecordedStep{}
	}
	st.known[name] = w.step()
	st.large = st.large || len(w.Result) > largeStep
}

// inherit takes over the steps of earlier attempts.
func (st *steps) inherit(recorded map[string]RecordedStep) {
	if len(recorded) == 0 {
		return
	}
	st.known = maps.Clone(recorded)
	for _, s := range recorded {
		st.large = st.large || s.Body.Parts > 0
	}
}

// begun reports whether the step has a begin mark and no outcome.
func (st *steps) begun(name string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.known[name].Begun
}

// open returns the name of a step that began and left no outcome, if there is one.
func (st *steps) open() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	for name, s := range st.known {
		if s.Begun {
			return name
		}
	}
	return ""
}

// mustPark reports whether an attempt that ends without outcome leaves a question,
// whatever its declaration.
func (st *steps) mustPark() bool {
	st.mu.Lock()
	parks := st.parks
	st.mu.Unlock()
	return parks || st.open() != ""
}

// anyLarge reports whether a result may lie beside the record.
func (st *steps) anyLarge() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.large
}

// any reports whether the record has steps.
func (st *steps) any() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.known) > 0
}

// close ends the attempt's steps: its handler has returned. It returns what keeps
// the operation from having an outcome, a step that still runs included.
func (st *steps) close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.over = true
	if st.halted != nil {
		return st.halted
	}
	for name, inside := range st.entered {
		if inside {
			return &ConfigError{fmt.Sprintf("step %q", name), "it still runs although the handler has returned: wait for steps before"}
		}
	}
	if st.undoers > 0 {
		return &ConfigError{"compensation", "it still goes on although the handler has returned: wait for Compensate before"}
	}
	return nil
}

// settleSteps decides what the steps make of the handler's end: an operation that
// was stopped, or has an open step, has no outcome; one that fails for good is
// undone first.
func (p *plan) settleSteps(ctx context.Context, a *attempt, ans *Answer, class Class) Class {
	st := &a.steps
	halted := st.close()
	if halted == nil && !st.any() && !a.open {
		return class
	}
	if halted != nil {
		switch {
		case ans.Err == nil:
			ans.Err = halted
		case !errors.Is(ans.Err, halted):
			ans.Err = errors.Join(unmark(ans.Err), halted)
		}
		return ClassUncertain
	}
	if name := st.open(); name != "" {
		if ans.Err == nil {
			ans.Err = &StepInterruptedError{Name: name}
		}
		return ClassUncertain
	}
	if class != ClassFailed && (class != ClassCompleted || st.undone() == nil) {
		return class
	}
	if err := a.compensate(ctx, ans.Err); err != nil {
		ans.Err = errors.Join(unmark(ans.Err), err)
		return ClassUncertain
	}
	return class
}
