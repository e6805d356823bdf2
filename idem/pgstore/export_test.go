package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// NewUnit returns a unit of work and its transaction.
func NewUnit(ctx context.Context, s *Store) (protocol.Unit, pgx.Tx, error) {
	u := &unit{store: s}
	tx, err := u.begin(ctx)
	return u, tx, err
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
