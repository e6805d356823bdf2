package pgstore_test

import (
	"context"
	"testing"
	"time"

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
