package idemtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// rotation is what the store keeps for secrets, or refuses everything.
func rotation(store protocol.Store) protocol.Rotation {
	if r, ok := store.(protocol.Rotation); ok {
		return r
	}
	return unkept{}
}

// Move puts a mark; see [protocol.Rotation]. Like the methods below it is refused with
// errors.ErrUnsupported over a store without it.
func (f *Faults) Move(ctx context.Context, now time.Time, m protocol.Move) error {
	return f.call(ctx, Move, m.ID, func(ctx context.Context) error { return rotation(f.store).Move(ctx, now, m) })
}

// Register reads an operation's register; see [protocol.Rotation].
func (f *Faults) Register(ctx context.Context, operation string) (*protocol.Register, error) {
	return read(ctx, f, Register, "", func(ctx context.Context) (*protocol.Register, error) {
		return rotation(f.store).Register(ctx, operation)
	})
}

// SetRegister writes an operation's register; see [protocol.Rotation].
func (f *Faults) SetRegister(ctx context.Context, now time.Time, r protocol.Register) error {
	return f.call(ctx, SetRegister, "", func(ctx context.Context) error { return rotation(f.store).SetRegister(ctx, now, r) })
}

func (p *process) Move(ctx context.Context, now time.Time, m protocol.Move) error {
	return p.call(func() error { return rotation(p.store).Move(ctx, now, m) })
}

func (p *process) Register(ctx context.Context, operation string) (reg *protocol.Register, err error) {
	err = p.call(func() (err error) {
		reg, err = rotation(p.store).Register(ctx, operation)
		return err
	})
	if err != nil {
		return nil, err
	}
	return reg, nil
}

func (p *process) SetRegister(ctx context.Context, now time.Time, r protocol.Register) error {
	return p.call(func() error { return rotation(p.store).SetRegister(ctx, now, r) })
}

// unkept is what a store without registers is taken for.
type unkept struct{}

var errUnkept = fmt.Errorf("idemtest: the store keeps no registers: %w", errors.ErrUnsupported)

func (unkept) Move(context.Context, time.Time, protocol.Move) error { return errUnkept }
func (unkept) Register(context.Context, string) (*protocol.Register, error) {
	return nil, errUnkept
}
func (unkept) SetRegister(context.Context, time.Time, protocol.Register) error { return errUnkept }
