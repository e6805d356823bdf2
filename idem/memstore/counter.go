package memstore

import (
	"context"
	"time"
)

// CountKey implements limit.Counter. No counter is ever forgotten.
func (s *Store) CountKey(ctx context.Context, counter string, bound int, _ time.Time) (counted bool, err error) {
	if err := alive(ctx, "CountKey"); err != nil {
		return false, err
	}
	if s.plain {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counters[counter] >= bound {
		return false, nil
	}
	s.counters[counter]++
	return true, nil
}
