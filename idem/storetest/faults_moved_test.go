package storetest

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Move is a write of [protocol.Rotation].
func (s *faulty) Move(ctx context.Context, now time.Time, m protocol.Move) error {
	return s.write(ctx, "Move", m.ID, func(r *protocol.Record) (*protocol.Record, error) { return s.move(m, r, now) })
}

// Register reads a register.
func (s *faulty) Register(_ context.Context, operation string) (*protocol.Register, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registers[operation].Clone(), nil
}

// SetRegister writes a register.
func (s *faulty) SetRegister(_ context.Context, _ time.Time, r protocol.Register) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.follows(r, s.registers[r.Operation]) {
		return &protocol.ConflictError{}
	}
	s.registers[r.Operation] = r.Clone()
	return nil
}

// movedFaults are faults of marks and registers.
var movedFaults = []fault{
	{"a mark overwrites a record", []string{"moved/not where there is a record"}, func(s *faulty) {
		s.move = func(m protocol.Move, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if m.Seen == "" {
				rec = nil
			}
			return m.Apply(rec, now)
		}
	}},
	{"a mark ignores Seen", []string{"moved/over the record that was seen"}, func(s *faulty) {
		s.move = func(m protocol.Move, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if m.Seen != "" && rec != nil {
				m.Seen = rec.Write
			}
			return m.Apply(rec, now)
		}
	}},
	{"a mark is taken for no record", []string{"moved/nothing lands on it"}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && rec.State == protocol.Moved {
				rec = nil
			}
			return c.Apply(rec, now)
		}
	}},
	{"a mark leads nowhere", []string{"moved/where there is no record, and again"}, func(s *faulty) {
		s.keep = func(r *protocol.Record) *protocol.Record {
			next := r.Clone()
			if next != nil {
				next.MovedTo = ""
			}
			return next
		}
	}},
	{"a register is written over any other one", []string{"moved/the register"}, func(s *faulty) {
		s.follows = func(protocol.Register, *protocol.Register) bool { return true }
	}},
}
