package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// byHand is what a team would write: a claim that says what is there, and an end that only its owner writes.
type byHand struct{ pool *pgxpool.Pool }

func (h byHand) first(ctx context.Context, id string, body []byte) error {
	var claimed bool
	err := h.pool.QueryRow(ctx, `WITH w AS (INSERT INTO by_hand (id, owner, state, fingerprint, lease, created, expires)
	VALUES ($1, $2, 'in_progress', $3, now() + interval '30 s', now(), now() + interval '1 day')
	ON CONFLICT DO NOTHING RETURNING 1)
	SELECT EXISTS (TABLE w)`, id, "owner-"+id, "1:hash").Scan(&claimed)
	if err != nil || !claimed {
		return errors.Join(err, fmt.Errorf("claimed: %v", claimed))
	}
	tag, err := h.pool.Exec(ctx, `UPDATE by_hand SET state = 'completed', body = $3, expires = now() + interval '1 day'
	WHERE id = $1 AND owner = $2`, id, "owner-"+id, body)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the claim is lost")
	}
	return err
}

func (h byHand) replay(ctx context.Context, id string) (body []byte, err error) {
	var claimed bool
	err = h.pool.QueryRow(ctx, `WITH w AS (INSERT INTO by_hand (id, owner, state, fingerprint, lease, created, expires)
	VALUES ($1, $2, 'in_progress', $3, now() + interval '30 s', now(), now() + interval '1 day')
	ON CONFLICT DO NOTHING RETURNING 1)
	SELECT EXISTS (TABLE w), body FROM by_hand WHERE id = $1`, id, "another", "1:hash").Scan(&claimed, &body)
	if err == nil && claimed {
		err = errors.New("not a replay")
	}
	return body, err
}

func BenchmarkPostgres(b *testing.B) {
	ctx := b.Context()
	pool, err := pgxpool.New(ctx, postgres.Start(b, "fsync=on").Database(b)+"&pool_max_conns=32")
	require.NoError(b, err)
	defer pool.Close()
	store := storeOver(b, pool)
	engine, err := idem.New(store, nil)
	require.NoError(b, err)
	_, err = pool.Exec(ctx, `CREATE TABLE by_hand (id text COLLATE "C" PRIMARY KEY, owner text NOT NULL,
	state text NOT NULL, fingerprint text NOT NULL, lease timestamptz NOT NULL, created timestamptz NOT NULL,
	due timestamptz, expires timestamptz, body bytea);
	CREATE INDEX ON by_hand (due) WHERE due IS NOT NULL; CREATE INDEX ON by_hand (expires) WHERE expires IS NOT NULL`)
	require.NoError(b, err)
	body := []byte(strings.Repeat("x", 1<<10))
	hand := byHand{pool}
	op := idem.Operation{Name: "bench", Repeat: idem.Repeatable}
	execute := func(id string) (idem.Outcome, error) {
		return engine.Execute(ctx, idem.Call{Key: op.Key("acme", id), Fingerprint: fingerprint.Bytes(body),
			Run: func(context.Context) idem.Answer { return idem.Answer{Body: body} }})
	}
	require.NoError(b, hand.first(ctx, "recorded", body))
	_, err = execute("recorded")
	require.NoError(b, err)
	var n atomic.Int64
	for name, call := range map[string]func() error{
		"first/by hand": func() error { return hand.first(ctx, op.Key("acme", fmt.Sprint(n.Add(1))).ID(), body) },
		"first/idem": func() error {
			out, err := execute(fmt.Sprint(n.Add(1)))
			if err == nil && !out.Executed {
				err = errors.New("not a first execution")
			}
			return err
		},
		"replay/by hand": func() error { _, err := hand.replay(ctx, "recorded"); return err },
		"replay/idem": func() error {
			out, err := execute("recorded")
			if err == nil && !out.Replayed {
				err = errors.New("not a replay")
			}
			return err
		},
	} {
		for _, callers := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("%s/%d callers", name, callers), func(b *testing.B) {
				b.SetParallelism(max(1, callers/2))
				if callers == 1 {
					for b.Loop() {
						require.NoError(b, call())
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := call(); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
