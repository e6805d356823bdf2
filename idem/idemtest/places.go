package idemtest

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

var (
	_ protocol.Places = (*Faults)(nil)
	_ protocol.Places = (*process)(nil)
)

// places is what a store keeps for operations with a limit, or what refuses everything.
func places(store protocol.Store) protocol.Places {
	if p, ok := store.(protocol.Places); ok {
		return p
	}
	return unplaced{}
}

// TakePlace takes a place; see [protocol.Places]. Like the methods below it is refused with an
// error that matches errors.ErrUnsupported over a store without it.
func (f *Faults) TakePlace(ctx context.Context, now time.Time, t protocol.PlaceTaking) error {
	return f.call(ctx, TakePlace, t.ID, func(ctx context.Context) error { return places(f.store).TakePlace(ctx, now, t) })
}

// ReturnPlace gives a place back; see [protocol.Places].
func (f *Faults) ReturnPlace(ctx context.Context, now time.Time, r protocol.PlaceReturn) error {
	return f.call(ctx, ReturnPlace, r.ID, func(ctx context.Context) error { return places(f.store).ReturnPlace(ctx, now, r) })
}

// CheckPlaces begins a look at the places; see [protocol.Places].
func (f *Faults) CheckPlaces(ctx context.Context, now time.Time, c protocol.PlaceCheck) error {
	return f.call(ctx, CheckPlaces, c.ID, func(ctx context.Context) error { return places(f.store).CheckPlaces(ctx, now, c) })
}

func (p *process) TakePlace(ctx context.Context, now time.Time, t protocol.PlaceTaking) error {
	return p.call(func() error { return places(p.store).TakePlace(ctx, now, t) })
}

func (p *process) ReturnPlace(ctx context.Context, now time.Time, r protocol.PlaceReturn) error {
	return p.call(func() error { return places(p.store).ReturnPlace(ctx, now, r) })
}

func (p *process) CheckPlaces(ctx context.Context, now time.Time, c protocol.PlaceCheck) error {
	return p.call(func() error { return places(p.store).CheckPlaces(ctx, now, c) })
}

// unplaced is what a store without places is taken for.
type unplaced struct{}

func (unplaced) TakePlace(context.Context, time.Time, protocol.PlaceTaking) error { return errUnplaced }
func (unplaced) ReturnPlace(context.Context, time.Time, protocol.PlaceReturn) error {
	return errUnplaced
}
func (unplaced) CheckPlaces(context.Context, time.Time, protocol.PlaceCheck) error {
	return errUnplaced
}
