package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// journal is what an attempt knows of its operation's steps. Steps may run side by side.
type journal struct {
	mu      sync.Mutex
	known   map[string]protocol.RecordedStep // those of earlier attempts, and what this one wrote
	entered map[string]bool                  // names that this attempt has reached, true while the step runs
	forward map[string]bool                  // steps that may run, across which nothing is undone
	asked   map[string]*StepInterruptedError // what open steps of earlier attempts have given
	held    map[string]int                   // room kept for the steps on their way
	room    room                             // what the steps take in the record
	undo    []compensation                   // in the order in which the results came
	cause   *Failure                         // why the operation is being undone
	found   bool                             // an earlier attempt has begun to undo it
	aborts  bool                             // the handler has called Abort
	halted  error                            // stops the operation
	large   bool                             // a result may be in parts outside the record
	watched bool                             // a begin mark that watches the claim was sent
	parks   bool                             // an operator must look
	closed  bool                             // the handler has returned
	undoing chan struct{}                    // holds the one who undoes
	undoers int                              // calls of Abort on their way
}

// locked calls f under the journal's lock.
func locked[T any](j *journal, f func() T) T {
	j.mu.Lock()
	defer j.mu.Unlock()
	return f()
}

// enter registers a step and returns what is known of it.
func (j *journal) enter(s *step) (protocol.RecordedStep, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || s.a.running.Load() == nil {
		return protocol.RecordedStep{}, s.bad("the handler has returned: wait for steps before")
	}
	if j.halted != nil {
		return protocol.RecordedStep{}, j.halted
	}
	if _, twice := j.entered[s.name]; twice {
		return protocol.RecordedStep{},
			s.bad("the name is used twice in one attempt: number the steps of a loop, such as \"ship-1\"")
	}
	if j.entered == nil {
		j.entered = map[string]bool{}
	}
	j.entered[s.name] = true
	return j.known[s.name], nil
}

// leave says that a step that was entered has returned.
func (j *journal) leave(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entered[name] = false
	delete(j.forward, name)
	j.room.held -= j.held[name]
	delete(j.held, name)
}

// reserve keeps room for a step that is about to run, or refuses it. What an error of
// the step takes beyond that is cut where there is no room. Until a step has left whose
// outcome must be known before anything is undone, nothing is.
func (j *journal) reserve(s *step) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.refusal(); err != nil {
		return err
	}
	need := j.room.needs(s.name, s.opts.compensate != nil) + smallStep
	if taken := j.room.taken(); taken+need > protocol.StepRoom {
		return &StepLimitError{Name: s.name, Taken: taken, Limit: protocol.StepRoom}
	}
	if j.held == nil {
		j.held = map[string]int{}
	}
	j.held[s.name] = need
	j.room.held += need
	if s.opts.semantics == AtMostOnce || s.opts.compensate != nil {
		if j.forward == nil {
			j.forward = map[string]bool{}
		}
		j.forward[s.name] = true
	}
	return nil
}

// refuses returns what a step gets that would run forward while the operation is being
// undone; nil if it is not.
func (j *journal) refuses() error { return locked(j, func() error { return j.refusal() }) }

func (j *journal) refusal() error {
	if j.cause == nil {
		return nil
	}
	return Permanent(&RecordedError{*j.cause})
}

// isOver reports whether the handler has returned. If it has not, how the attempt
// ends depends on all that is noted by now.
func (j *journal) isOver() bool { return locked(j, func() bool { return j.closed }) }

// interrupted notes what an open step of an earlier attempt gives. It needs no parking if it
// is asked about again.
func (j *journal) interrupted(e *StepInterruptedError) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.asked == nil {
		j.asked = map[string]*StepInterruptedError{}
	}
	j.asked[e.Name] = e
	return e
}

// halt stops the operation: its context ends, no further step runs, and it ends by
// its declaration. The first reason stays.
func (j *journal) halt(l *lease, err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.halted == nil {
		j.halted = err
		l.cancel(err)
	}
	return j.halted
}

// stopped returns why the operation has been stopped; nil if it has not. What is noted
// may be missing in the record then, and nothing uses it any more.
func (j *journal) stopped() error { return locked(j, func() error { return j.halted }) }

// write records a step. If it cannot show that the step was written, the operation stops.
// The caller's cancellation does not end the call, because then it would stay
// unknown whether the write has landed, and a step that runs next to one that failed is often cancelled.
// A result that the store cannot take is left out, as w then says.
func (j *journal) write(ctx context.Context, a *attempt, w *protocol.StepWrite) error {
	j.mu.Lock()
	halted := j.halted
	w.First, w.Seen = len(j.known) == 0, j.known[w.Name].Write
	if halted == nil && w.Begin && j.closed {
		halted = fmt.Errorf("idem: step %q does not begin: the handler has returned", w.Name)
	}
	if (w.Begin || w.Unread) && halted == nil {
		w.Due = a.due()
		j.watched = j.watched || !w.Due.IsZero()
	}
	if w.Unread {
		w.Spent = j.spent(w.Name)
	}
	inline, held := 0, 0
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.room.inline -= inline
		j.room.held -= held
	}()
	if w.InParts = !j.room.fits(w.Result); !w.InParts {
		inline = j.room.keep(w.Result)
	}
	if f := w.Failure; f != nil && w.Name != compensating {
		if j.room.taken()+failureSize(f) > protocol.StepRoom {
			w.Failure = protocol.ShortFailure(f)
		}
		held = failureSize(w.Failure)
		j.room.held += held
	}
	j.mu.Unlock()
	if halted != nil {
		return halted
	}
	l := a.running.Load()
	at, err := l.send(ctx, w)
	if large, ok := errors.AsType[*protocol.TooLargeError](err); ok {
		switch {
		case w.Begin:
			return &StepLimitError{Name: w.Name, Taken: large.Size, Limit: large.Limit}
		case w.Result != nil:
			// Done is done, whatever becomes of the result.
			loseResult(w, err)
			at, err = l.send(ctx, w)
		}
	}
	_, conflict := errors.AsType[*protocol.ConflictError](err)
	switch {
	case err == nil:
	case conflict:
		return j.halt(l, fmt.Errorf("%w: step %q is not recorded", ErrLeaseLost, w.Name))
	default:
		err = fmt.Errorf("idem: step %q is not recorded, the operation stops: %w", w.Name, err)
		switch {
		case w.Begin:
			// The function has not run and will not, whether the mark landed or not. Taken
			// back, it keeps no caller waiting; if that fails too, the next attempt looks.
			back := &protocol.StepWrite{Name: w.Name, NotExecuted: true, Seen: w.Write, First: w.First}
			if at, bErr := l.send(ctx, back); bErr == nil {
				j.put(back, at)
			}
		case w.Read, w.Unread:
			// Nothing uses it: the next attempt reads it again.
		default:
			// Recorded or not: the next attempt sees, and may know how to close the step.
			j.put(w, at)
		}
		return j.halt(l, err)
	}
	j.put(w, at)
	if w.Begin || w.Unread {
		l.rearm()
	}
	return nil
}

// send makes one call to the store, and says for when.
func (l *lease) send(ctx context.Context, w *protocol.StepWrite) (time.Time, error) {
	e := l.x.engine
	w.ID, w.Owner, w.Write = l.a.rec.ID, l.a.rec.Owner, l.a.writeID()
	ctx, cancel := l.x.finishing(ctx, len(w.Result))
	defer cancel()
	now := e.now()
	return now, e.store.RecordStep(ctx, now, *w)
}

// put notes what has been recorded.
func (j *journal) put(w *protocol.StepWrite, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.known == nil {
		j.known = map[string]protocol.RecordedStep{}
	}
	s := w.Recorded(j.known[w.Name], at)
	if w.InParts {
		s.Body.Data = s.Body.Data[:min(len(s.Body.Data), smallStep)] // for room alone
	}
	j.room.add(-1, w.Name, j.known[w.Name])
	j.room.add(1, w.Name, s)
	j.known[w.Name] = s
	j.large = j.large || len(w.Result) > largeStep || w.InParts
}

// inherit takes over the steps of earlier attempts.
func (j *journal) inherit(recorded map[string]protocol.RecordedStep) {
	if len(recorded) == 0 {
		return
	}
	j.known = maps.Clone(recorded)
	for name, s := range recorded {
		j.large = j.large || s.Body.Parts > 0
		j.room.add(1, name, s)
	}
	j.cause = j.known[compensating].Failure
	j.found = j.cause != nil
}

// spent is the result of the step, if no other step's is the same: one resolution may record it for
// several, and it is stored once.
func (j *journal) spent(name string) protocol.Body {
	entry := j.known[name]
	for other, s := range j.known {
		if other != name && s.Write == entry.Write && s.Body.Parts > 0 && bytes.Equal(s.Body.Digest, entry.Body.Digest) {
			return protocol.Body{}
		}
	}
	return entry.Body
}

// begun reports whether the step has a begin mark and no outcome.
func (j *journal) begun(name string) bool {
	return locked(j, func() bool { return j.known[name].Begun })
}

// open returns a step that began and left no outcome, nil if there is none, and whether an
// earlier attempt has begun one of them and this one could not close it.
func (j *journal) open() (open *StepInterruptedError, interrupted bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.opened(), len(j.asked) > 0
}

// opened returns an open step: one that must be looked at, else the one that is asked about
// again last, by when the others can be closed too.
func (j *journal) opened() (open *StepInterruptedError) {
	for name, s := range j.known {
		if !s.Begun {
			continue
		}
		e := j.asked[name]
		switch {
		case e == nil:
			return &StepInterruptedError{Name: name}
		case e.RetryAt.IsZero():
			return e
		case open == nil || e.RetryAt.After(open.RetryAt):
			open = e
		}
	}
	return open
}

// waits reports whether nothing but steps that are asked about again is open.
func (j *journal) waits() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	open := j.opened()
	return open != nil && !open.RetryAt.IsZero()
}

// mustPark reports whether an attempt that ends without outcome leaves a question
// that no later attempt answers, whatever its declaration.
func (j *journal) mustPark() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	open := j.opened()
	return j.parks || open != nil && open.RetryAt.IsZero()
}

// anyLarge reports whether a result may be in parts outside the record.
func (j *journal) anyLarge() bool { return locked(j, func() bool { return j.large }) }

// mayBeWatched reports whether a begin mark may have made the claim a watched one.
func (j *journal) mayBeWatched() bool { return locked(j, func() bool { return j.watched }) }

// any reports whether the record has steps.
func (j *journal) any() bool { return locked(j, func() bool { return len(j.known) > 0 }) }

// close ends the attempt's steps: its handler has returned. It returns what keeps
// the operation from having an outcome, a step that still runs included.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	if j.halted != nil {
		return j.halted
	}
	for name, inside := range j.entered {
		if inside {
			return configError(fmt.Sprintf("step %q", name),
				"it still runs although the handler has returned: wait for steps before")
		}
	}
	if j.undoers > 0 {
		return configError("Abort", "it still runs although the handler has returned: wait for it before you return")
	}
	return nil
}
