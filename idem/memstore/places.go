package memstore

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

var _ protocol.Places = (*Store)(nil)

// TakePlace takes a place; see [protocol.Places].
func (s *Store) TakePlace(ctx context.Context, now time.Time, t protocol.PlaceTaking) error {
	return s.changePlaces(ctx, "TakePlace", t.ID, now, t.Apply)
}

// ReturnPlace gives a place back; see [protocol.Places].
func (s *Store) ReturnPlace(ctx context.Context, now time.Time, r protocol.PlaceReturn) error {
	return s.changePlaces(ctx, "ReturnPlace", r.ID, now, r.Apply)
}

// CheckPlaces begins a look at the places; see [protocol.Places].
func (s *Store) CheckPlaces(ctx context.Context, now time.Time, c protocol.PlaceCheck) error {
	return s.changePlaces(ctx, "CheckPlaces", c.ID, now, c.Apply)
}

func (s *Store) changePlaces(ctx context.Context, op, id string, now time.Time,
	apply func(*protocol.PlaceState, time.Time) (*protocol.PlaceState, error)) error {
	if err := alive(ctx, op); err != nil {
		return err
	}
	if s.plain {
		return nil // every attempt is alone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	group, _ := protocol.PlaceOf(id)
	next, err := apply(s.places[group], now)
	if err != nil {
		return err
	}
	if s.places == nil {
		s.places = map[string]*protocol.PlaceState{}
	}
	s.places[group] = next
	return nil
}
