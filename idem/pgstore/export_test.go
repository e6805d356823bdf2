package pgstore

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// NewUnit returns a unit of work and its transaction.
func NewUnit(ctx context.Context, s *Store) (protocol.Unit, pgx.Tx, error) {
	u := &unit{store: s}
	tx, err := u.begin(ctx)
	return u, tx, err
}

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

// PutMessage stores a message as a transaction does, or as Retry leaves it.
func PutMessage(ctx context.Context, s *Store, e *outbox.Entry) error {
	lane := live
	if e.State == outbox.Retrying {
		lane = laneOf(e.OrderingKey)
	}
	_, err := s.driver.pool.Exec(ctx, `INSERT INTO idem_outbox
	(record, number, created, id, destination, ordering_key, head, body, state, lane)
	VALUES ($1, $2, $3, ($4::text[])[1], ($5::text[])[1], ($6::text[])[1], ($7::text[])[1], ($8::bytea[])[1],
		$9, $10)
	ON CONFLICT (record, id) DO UPDATE SET created = EXCLUDED.created`,
		append(append([]any{e.Record, e.Number}, values([]*outbox.Entry{e})...), string(e.State), lane)...)
	return err
}
