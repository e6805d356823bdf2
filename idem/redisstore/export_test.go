package redisstore

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/casstore"
)

// Tags are those of the groups.
const Tags = tags

// MeetClaim sends what an engine's claim of a recorded key sends.
func MeetClaim(ctx context.Context, s *Store, id string) error {
	const claim = 420 // bytes
	row, written, err := s.driver.Write(ctx, casstore.Change{Due: time.Now(),
		Row: casstore.Row{ID: id, Version: 1, Data: bytes.Repeat([]byte("x"), claim)}})
	if err == nil && (written || len(row.Body) == 0) {
		err = errors.New("it is not recorded")
	}
	return err
}
