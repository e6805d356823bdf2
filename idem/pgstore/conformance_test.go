package pgstore_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/storetest"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

func openURL(t *testing.T, url string) (*pgstore.Store, *pgxpool.Pool) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url+"&pool_max_conns=20")
	require.NoError(t, err)
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() { pool.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Error("a connection is not given back")
		}
	})
	return storeOver(t, pool), pool
}

// storeOver returns a store whose tables are there.
func storeOver(tb testing.TB, pool *pgxpool.Pool) *pgstore.Store {
	tb.Helper()
	s, err := pgstore.New(pool)
	require.NoError(tb, err)
	require.NoError(tb, s.Migrate(tb.Context()))
	return s
}

func TestConformance(t *testing.T) { conformance(t, "") }

// unprepared is how statements are sent behind PgBouncer in transaction mode.
const unprepared = "&default_query_exec_mode=exec"

// Where each statement is a transaction that may be refused for another one's sake, as in Aurora DSQL, and where none
// is prepared.
func TestConformanceOfSnapshots(t *testing.T) {
	conformance(t, unprepared+"&default_transaction_isolation=repeatable%20read")
}

func conformance(t *testing.T, settings string) {
	open := func(t *testing.T) (*pgstore.Store, *pgxpool.Pool) {
		return openURL(t, postgres.Shared(t).Database(t)+settings)
	}
	shared, all := open(t)
	_, err := all.Exec(t.Context(), "CREATE TABLE effects (id text PRIMARY KEY)")
	require.NoError(t, err)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		// These list what is there.
		if strings.Contains(t.Name(), "/scan/") || strings.Contains(t.Name(), "/questions/") {
			s, pool := open(t)
			return harness(t, s, pool)
		}
		return harness(t, shared, all)
	})
}

func harness(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) storetest.Harness {
	exec := func(sql string) func(context.Context, string) error {
		return func(ctx context.Context, id string) error {
			_, err := pool.Exec(ctx, sql, id)
			return err
		}
	}
	return storetest.Harness{
		Store: s, Scanner: s, Parallel: true,
		Unit: func(ctx context.Context) (protocol.Unit, func(context.Context) (bool, error), error) {
			u, tx, err := pgstore.NewUnit(ctx, s)
			if err != nil {
				return nil, nil, err
			}
			t.Cleanup(u.(interface{ Drop() }).Drop)
			id := rand.Text()
			_, err = tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", id)
			return u, func(ctx context.Context) (there bool, err error) {
				err = pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM effects WHERE id = $1)", id).Scan(&there)
				return there, err
			}, err
		},
		Delete: exec("DELETE FROM idem_rows WHERE id = $1"),
		Damages: []storetest.Damage{
			{Name: "newer version", Do: exec(`UPDATE idem_rows SET data = replace(data, '"v":1', '"v":2') WHERE id = $1`)},
			{Name: "no owner", Do: exec(`UPDATE idem_rows SET data = replace(data, '"owner"', '"seen"') WHERE id = $1`)},
			{Name: "missing part", Parts: true, Do: exec("DELETE FROM idem_parts WHERE id = $1")},
			{Name: "altered part", Parts: true,
				Do: exec("UPDATE idem_parts SET data = substr(data, 2) || '\\x00' WHERE id = $1")},
		},
	}
}

var _ protocol.Store = (*pgstore.Store)(nil)
var _ idem.Store = (*pgstore.Store)(nil)
