package idem

import (
	"context"
	"errors"
	"fmt"
	"github.com/idem-go/idempotency/idem/protocol"
	"maps"
	"sync"
	"time"
)

// steps is what an attempt knows of its operation's steps. Steps may run side by
// side.
type steps struct {
	mu      sync.Mutex
	known   map[string]protocol.RecordedStep // those of earlier attempts, and what this one wrote
	entered map[string]bool                  // names that this attempt has come by, true while it is inside
	starts  map[string]bool                  // begin marks on their way
	again   map[string]bool                  // open steps that a later attempt asks about again
	held    map[string]int                   // room kept for the steps on their way
	room    room                             // what the steps take in the record
	undo    []compensation                   // in the order in which the results came
	cause   *Failure                         // why the operation is being undone
	found   bool                             // an earlier attempt has begun to undo it
	byHand  bool                             // the handler has called Compensate
	halted  error                            // stops the operation
	large   bool                             // a result may lie beside the record
	parks   bool                             // somebody must look
	over    bool                             // the handler has returned
	undoing sync.Mutex                       // one goroutine undoes at a time
	undoers int                              // calls of Compensate on their way
}

// enter registers a step and returns what is known of it.
func (st *steps) enter(s *step) (protocol.RecordedStep, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over || s.a.running == nil {
		return protocol.RecordedStep{}, s.bad("the handler has returned: wait for steps before")
	}
	if st.halted != nil {
		return protocol.RecordedStep{}, st.halted
	}
	if _, twice := st.entered[s.name]; twice {
		return protocol.RecordedStep{}, s.bad("the name is used twice in one attempt: number the steps of a loop, such as \"ship-1\"")
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
	st.room.held -= st.held[name]
	delete(st.held, name)
}

// reserve keeps room for a step that is about to run, or refuses it. What an error of
// the step takes beyond that is cut where there is no room.
func (st *steps) reserve(s *step) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	need := stepNeeds(s.name, s.opts.compensate != nil) + smallStep
	if taken := st.room.taken(); taken+need > protocol.StepRoom {
		return &StepLimitError{Name: s.name, Taken: taken, Limit: protocol.StepRoom}
	}
	if st.held == nil {
		st.held = map[string]int{}
	}
	st.held[s.name] = need
	st.room.held += need
	return nil
}

// beginStep says that a begin mark is about to be written. Nothing begins once the
// operation is being undone.
func (st *steps) beginStep(name string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.cause != nil {
		return Permanent(&RecordedError{*st.cause})
	}
	if st.starts == nil {
		st.starts = map[string]bool{}
	}
	st.starts[name] = true
	return nil
}

// began says that the begin mark is written, or will not be.
func (st *steps) began(name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.starts, name)
}

// isOver reports whether the handler has returned. Where it has not, how the attempt
// ends goes by all that is noted by now.
func (st *steps) isOver() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.over
}

// askAgain notes an open step that is not to be parked for: what became of it can be
// found out later.
func (st *steps) askAgain(name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.again == nil {
		st.again = map[string]bool{}
	}
	st.again[name] = true
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
// A result that the store cannot take is left out, as w then says.
func (st *steps) record(ctx context.Context, a *attempt, w *protocol.StepWrite) error {
	st.mu.Lock()
	halted := st.halted
	w.First, w.Seen = len(st.known) == 0, st.known[w.Name].Write
	if halted == nil && w.Begin && st.over {
		halted = fmt.Errorf("idem: step %q does not begin: the handler has returned", w.Name)
	}
	if w.Beside = !st.room.fits(w.Result); !w.Beside {
		kept := st.room.keep(w.Result)
		defer func() {
			st.mu.Lock()
			st.room.inline -= kept
			st.mu.Unlock()
		}()
	}
	if f := w.Failure; f != nil && w.Name != compensating {
		if st.room.taken()+failureSize(f) > protocol.StepRoom {
			w.Failure = shortFailure(f)
		}
		size := failureSize(w.Failure)
		st.room.held += size
		defer func() {
			st.mu.Lock()
			st.room.held -= size
			st.mu.Unlock()
		}()
	}
	st.mu.Unlock()
	if halted != nil {
		return halted
	}
	l := a.running
	at, err := l.send(ctx, w)
	var large *protocol.TooLargeError
	if errors.As(err, &large) {
		switch {
		case w.Begin:
			return &StepLimitError{Name: w.Name, Taken: large.Size, Limit: large.Limit}
		case w.Result != nil:
			// Done is done, whatever becomes of the result.
			loseResult(w, err)
			at, err = l.send(ctx, w)
		}
	}
	var conflict *protocol.ConflictError
	switch {
	case err == nil:
	case errors.As(err, &conflict):
		return st.halt(l, fmt.Errorf("%w: step %q is not recorded", ErrLeaseLost, w.Name))
	default:
		err = fmt.Errorf("idem: step %q is not recorded, the operation stops: %w", w.Name, err)
		if w.Begin {
			// The function has not run and will not, whether the mark landed or not. Taken
			// back, it keeps nobody waiting; if that fails too, the next attempt looks.
			back := &protocol.StepWrite{Name: w.Name, NotExecuted: true, Seen: w.Write, First: w.First}
			if at, bErr := l.send(ctx, back); bErr == nil {
				st.put(back, at)
			}
		} else {
			// Recorded or not: the next attempt sees, and may know how to settle it.
			st.put(w, at)
		}
		return st.halt(l, err)
	}
	st.put(w, at)
	if w.Begin {
		l.watch()
	}
	return nil
}

// send makes one call to the store, and says for when.
func (l *lease) send(ctx context.Context, w *protocol.StepWrite) (time.Time, error) {
	e := l.plan.engine
	w.ID, w.Owner, w.Write = l.a.rec.ID, l.a.rec.Owner, l.a.writeID()
	ctx, cancel := l.plan.finishing(ctx, len(w.Result))
	defer cancel()
	now := e.now()
	return now, e.store.RecordStep(ctx, now, *w)
}

// put notes what has been recorded.
func (st *steps) put(w *protocol.StepWrite, at time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.known == nil {
		st.known = map[string]protocol.RecordedStep{}
	}
	s := w.Recorded(at)
	if w.Beside {
		s.Body.Data = s.Body.Data[:min(len(s.Body.Data), smallStep)] // for room alone
	}
	st.room.add(-1, w.Name, st.known[w.Name])
	st.room.add(1, w.Name, s)
	st.known[w.Name] = s
	st.large = st.large || len(w.Result) > largeStep || w.Beside
}

// inherit takes over the steps of earlier attempts.
func (st *steps) inherit(recorded map[string]protocol.RecordedStep) {
	if len(recorded) == 0 {
		return
	}
	st.known = maps.Clone(recorded)
	for name, s := range recorded {
		st.large = st.large || s.Body.Parts > 0
		st.room.add(1, name, s)
	}
	st.cause = st.known[compensating].Failure
	st.found = st.cause != nil
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
	name, _ := st.opened()
	return name
}

// opened returns an open step, one that must be looked at before all others.
func (st *steps) opened() (name string, looked bool) {
	for n, s := range st.known {
		if !s.Begun {
			continue
		}
		if !st.again[n] {
			return n, true
		}
		name = n
	}
	return name, false
}

// mustPark reports whether an attempt that ends without outcome leaves a question
// that no later attempt answers, whatever its declaration.
func (st *steps) mustPark() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, looked := st.opened()
	return st.parks || looked
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
