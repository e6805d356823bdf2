package idem

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// UnitOf returns the attempt's unit of work, which the first call makes. It returns a [*ConfigError] outside an
// operation, over a store that commits no units, and inside a [Step]. After the handler has returned, it returns a new
// unit that is sealed. It is for packages with a store; handlers call dynamostore.TxOf or the like.
//
// A unit commits if and only if the attempt ends as completed. It is dropped after a
// handler's error, by [Abort], and after a response that is a refusal, unless the handler calls
// [SetCompleted]. If the store refuses the unit, the caller gets the reason as the
// handler's own error. If the commit cannot be confirmed, the caller gets a [*CommitError].
func UnitOf(ctx context.Context, create func() Unit) (Unit, error) {
	a := attemptOf(ctx)
	switch {
	case a == nil:
		return nil, configError("unit of work", "the context is not a handler's: pass the context that the handler was given")
	case stepOf(ctx) != "":
		return nil, configError("unit of work",
			"it is asked for inside step %q, which later attempts skip: collect in the handler", stepOf(ctx))
	case a.shadow:
		return nil,
			fmt.Errorf("%w: %w", configError("unit of work", "the operation is in shadow, where the handler's answer is given "+
				"before anything could commit: try the handler with writes of its own, or set "+
				"Shadow to false"), errors.ErrUnsupported)
	}
	if err := a.engine().traits.NoUnits; err != nil {
		return nil, err
	}
	a.signs.Store(true)
	s := &a.unit
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unit == nil {
		s.unit = create()
		if s.ended {
			s.unit.Seal()
		}
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
	if s.unit == nil || !s.unit.Seal() {
		return nil
	}
	return s.unit
}

// drop ends what the unit holds. The attempt may wait in the queue, its unit must not.
func (s *unitSlot) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u, ok := s.unit.(interface{ Drop() }); ok {
		u.Drop()
	}
	s.unit = nil
}
