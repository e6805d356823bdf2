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
	entered map[string]struct{}     // names that this attempt has come by
	undo    []compensation          // in the order in which the results came
	halted  error                   // stops the operation
	large   bool                    // a result may lie beside the record
	parks   bool                    // somebody must look
	over    bool                    // the handler has returned
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
		st.entered = map[string]struct{}{}
	}
	st.entered[s.name] = struct{}{}
	return st.known[s.name], nil
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
// operation.
func (st *steps) record(ctx context.Context, a *attempt, w StepWrite) error {
	l := a.running
	e := l.plan.engine
	w.ID, w.Owner, w.Write = a.rec.ID, a.rec.Owner, a.writeID()
	st.mu.Lock()
	if st.halted != nil {
		defer st.mu.Unlock()
		return st.halted
	}
	w.First = len(st.known) == 0
	if w.Begin {
		// Open from now on: whether the mark lands or its reply is lost.
		st.put(w.Name, w.step())
		defer l.watch()
	}
	st.mu.Unlock()

	ctx, cancel := l.plan.bounded(ctx, len(w.Result))
	defer cancel()
	err := e.store.RecordStep(ctx, e.now(), w)
	if err != nil {
		var conflict *ConflictError
		if errors.As(err, &conflict) {
			err = fmt.Errorf("%w: step %q is not recorded", ErrLeaseLost, w.Name)
		} else {
			err = fmt.Errorf("idem: step %q is not recorded, the operation stops: %w", w.Name, err)
		}
		return st.halt(l, err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.put(w.Name, w.step())
	st.large = st.large || len(w.Result) > largeStep
	return nil
}

func (st *steps) put(name string, s RecordedStep) {
	if st.known == nil {
		st.known = map[string]RecordedStep{}
	}
	st.known[name] = s
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

// any reports whether the record has steps.
func (st *steps) any() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.known) > 0
}

// close ends the attempt's steps: its handler has returned.
func (st *steps) close() (halted error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.over = true
	return st.halted
}

// settleSteps decides what the steps make of the handler's end: an operation that
// was stopped, or has an open step, has no outcome; one that fails for good is
// undone first.
func (p *plan) settleSteps(ctx context.Context, a *attempt, ans *Answer, class Class) Class {
	st := &a.steps
	halted := st.close()
	if halted == nil && !st.any() {
		return class
	}
	if halted != nil {
		ans.Err = halted
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
