package pgstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// A service that starts, and finds its tables, waits for no transaction of another one.
func TestAMigrationWaitsForNoTransaction(t *testing.T) {
	s, pool := openURL(t, postgres.Shared(t).Database(t))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for _, table := range []string{"idem_rows", "idem_outbox"} {
		_, err = tx.Exec(t.Context(), "LOCK TABLE "+table+" IN ROW EXCLUSIVE MODE") // as a write does
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, s.Migrate(ctx))
}

// Of several processes that start at once, one makes the tables.
func TestMigrationsAtOnce(t *testing.T) {
	url := postgres.Shared(t).Database(t)
	s, pool := openURL(t, url)
	const n = 8
	conns := make([]*pgxpool.Conn, n) // so that all begin in the same moment
	var all sync.WaitGroup
	for range 5 {
		_, err := pool.Exec(t.Context(), "DROP TABLE idem_rows, idem_parts, idem_changes, idem_outbox")
		require.NoError(t, err)
		for i := range conns {
			conns[i], err = pool.Acquire(t.Context())
			require.NoError(t, err)
		}
		for _, conn := range conns {
			conn.Release()
		}
		for range n {
			all.Go(func() {
				if err := s.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		_, err = s.Get(t.Context(), "acme#order#a")
		require.NoError(t, err)
	}
}
