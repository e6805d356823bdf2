package memstore

import (
	"slices"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Unit is a unit of work that can commit in memory, such as a *dynamostore.Tx. The
// store keeps it together with the outcome; [Store.Units] shows what has committed.
type Unit interface {
	protocol.Unit
	// CommitInMemory returns nil if the unit may commit, else an [*protocol.RefusedError].
	// It changes nothing. conditions is what was given to [Store.Conditions], or nil.
	CommitInMemory(conditions func(action any) (holds bool, old any)) error
}

// Conditions sets what decides about the conditions of actions from now on: whether one
// holds, and if not, what the item was like. Memory has no tables, applies no update to
// an item and evaluates no expression. Without the function an action that has a
// condition is refused, so that no test passes for a condition that was not looked
// at. Action and old item are of the unit's own kind: those of a *dynamostore.Tx are a
// types.TransactWriteItem of the SDK, and a map[string]types.AttributeValue or nil for
// no item. The function is called while the store is locked and must not call it.
func (s *Store) Conditions(decide func(action any) (holds bool, old any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conditions = decide
}

// Units returns the units of work that have committed, in the order of their commits.
func (s *Store) Units() []protocol.Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.units)
}

// commit is the unit's part of a Finish that is about to be written.
func (s *Store) commit(u Unit) error {
	if err := u.CommitInMemory(s.conditions); err != nil {
		return err
	}
	s.units = append(s.units, u)
	return nil
}
