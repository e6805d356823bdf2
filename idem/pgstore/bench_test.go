package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/testenv/duel"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// byHand is what a team would write with the same promise: a claim that says what is there, that others can take over
// when its lease is over, and that a sweep finds; and an end that only its owner writes.
type byHand struct{ pool *pgxpool.Pool }

const byHandTable = `CREATE TABLE by_hand (
	id text COLLATE "C" PRIMARY KEY, owner text NOT NULL, state text NOT NULL, attempt int NOT NULL,
	fingerprint text NOT NULL, lease timestamptz NOT NULL, created timestamptz NOT NULL, updated timestamptz NOT NULL,
	due timestamptz, expires timestamptz, body bytea
) WITH (fillfactor = 70);
CREATE INDEX ON by_hand (due) WHERE due IS NOT NULL;
CREATE INDEX ON by_hand (expires) WHERE expires IS NOT NULL`

const claimByHand = `WITH w AS (
	INSERT INTO by_hand (id, owner, state, attempt, fingerprint, lease, created, updated, due)
	VALUES ($1, $2, 'in_progress', 1, $3, $4, now(), now(), $4) ON CONFLICT DO NOTHING RETURNING 1)
SELECT EXISTS (TABLE w), r.state, r.owner, r.fingerprint, r.lease, r.body FROM (SELECT) AS one
LEFT JOIN by_hand AS r ON r.id = $1`

func (h byHand) claim(ctx context.Context, id, owner string) (claimed bool, body []byte, err error) {
	call := duel.Execution(id)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var state, by, fingerprint *string
	var lease *time.Time
	err = h.pool.QueryRow(ctx, claimByHand, call.Key.ID(), owner, call.Fingerprint, time.Now().Add(30*time.Second)).
		Scan(&claimed, &state, &by, &fingerprint, &lease, &body)
	if err == nil && !claimed && *fingerprint != string(call.Fingerprint) {
		err = errors.New("another request")
	}
	return claimed, body, err
}

func (h byHand) first(ctx context.Context, id string) error {
	owner := rand.Text()
	claimed, _, err := h.claim(ctx, id, owner)
	if err != nil || !claimed {
		return errors.Join(err, fmt.Errorf("claimed: %v", claimed))
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tag, err := h.pool.Exec(ctx, `UPDATE by_hand SET state = 'completed', body = $3, updated = now(), due = NULL,
	expires = now() + interval '1 day' WHERE id = $1 AND owner = $2 AND state = 'in_progress'`,
		duel.Operation.Key("acme", id).ID(), owner, duel.Body)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the claim is lost")
	}
	return err
}

func (h byHand) replay(ctx context.Context, id string) error {
	claimed, body, err := h.claim(ctx, id, rand.Text())
	if err == nil && (claimed || len(body) != len(duel.Body)) {
		err = errors.New("not a replay")
	}
	return err
}

// BenchmarkByHand compares calls with statements by hand, on a server that writes to its disk.
func BenchmarkByHand(b *testing.B) {
	ctx := b.Context()
	server := postgres.Start(b, "fsync=on")
	require.NoError(b, duel.Apart(server.PID()))
	pool, err := pgxpool.New(ctx, server.Database(b)+"&pool_max_conns=32")
	require.NoError(b, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, byHandTable)
	require.NoError(b, err)
	store := storeOver(b, pool)
	side, err := duel.NewSide(ctx, store)
	require.NoError(b, err)
	statement := func(ctx context.Context, id string) error {
		return pgstore.MeetClaim(ctx, store, duel.Operation.Key("acme", id).ID())
	}
	hand := byHand{pool}
	require.NoError(b, duel.Record(ctx, hand.first))
	for b.Loop() {
		require.NoError(b, duel.Run(ctx, duel.Path{Name: "first", ID: duel.NewID, ByHand: hand.first, Idem: side.First,
			Least: 0.85}, duel.Path{Name: "replay", ID: duel.Recorded, ByHand: hand.replay, Idem: side.Replay, Least: 0.8},
			duel.Path{Name: "statement", ID: duel.Recorded, ByHand: hand.replay, Idem: statement, Least: 0.9}))
	}
}
