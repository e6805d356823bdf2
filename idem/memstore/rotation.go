package memstore

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Move puts a mark; see [protocol.Rotation].
func (s *Store) Move(ctx context.Context, now time.Time, m protocol.Move) error {
	return s.write(ctx, "Move", s.place(m.ID, m.Write), now, m.Apply, with{})
}

// Register reads an operation's register; see [protocol.Rotation].
func (s *Store) Register(ctx context.Context, operation string) (*protocol.Register, error) {
	if err := alive(ctx, "Register"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registers[operation].Clone(), nil
}

// SetRegister writes an operation's register; see [protocol.Rotation].
func (s *Store) SetRegister(ctx context.Context, now time.Time, r protocol.Register) error {
	if err := alive(ctx, "SetRegister"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.Follows(s.registers[r.Operation]) {
		return &protocol.ConflictError{}
	}
	s.registers[r.Operation] = r.Clone()
	return nil
}
