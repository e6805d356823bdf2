package idem

import (
	"context"
	"sync"
)

// UnitOf is for packages with a store: handlers call functions of those, such as
// dynamostore.TxOf. It returns the unit of work of the attempt that the context belongs
// to, and makes it if it is asked for the first time; once the handler has returned, a
// new one that is sealed. Outside an operation, and inside a [Step], which a later
// attempt skips with all that it would have collected, it returns a [*ConfigError].
//
// A unit commits if and only if the attempt ends as completed. A handler's error drops
// it, and so does a response that is a refusal, such as an HTTP status of 400 or more,
// unless the handler says [SetCompleted], and so do [Abort] and the undoing of steps. If
// the store refuses it, the caller gets the reason as the handler's own error, and the
// record goes by its class. If the commit cannot be confirmed the caller gets a
// [*CommitError].
func UnitOf(ctx context.Context, create func() Unit) (Unit, error) {
	a := attemptOf(ctx)
	switch {
	case a == nil:
		return nil, &ConfigError{What: "unit of work", Problem: "the context is not a handler's: pass the context that the handler was given"}
	case stepOf(ctx) != "":
		return nil, &ConfigError{What: "unit of work", Problem: "it is asked for inside step \"" + stepOf(ctx) + "\", which later attempts skip: collect in the handler"}
	}
	a.signs.Store(true)
	s := &a.unit
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		sealed := create()
		sealed.Seal()
		return sealed, nil
	}
	if s.unit == nil {
		s.unit = create()
	}
	return s.unit, nil
}

// unitSlot holds an attempt's unit of work, which handlers may ask for from
// several goroutines.
type unitSlot struct {
	mu    sync.Mutex
	ended bool
	unit  Unit
}

// seal ends the collecting. It returns nil if there is nothing to commit.
func (s *unitSlot) seal() Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	u := s.unit
	s.unit = nil // an attempt may wait in the queue, its unit must not
	if u == nil || !u.Seal() {
		return nil
	}
	return u
}
