package pgstore_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// A pool that others have used up is no outage: nothing runs without a claim, since others may have one.
func TestAPoolThatIsUsedUpIsNoOutage(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), postgres.Shared(t).Database(t)+"&pool_max_conns=2")
	require.NoError(t, err)
	defer pool.Close()
	e, err := idem.New(storeOver(t, pool), &idem.Options{ClaimBudget: 200 * time.Millisecond})
	require.NoError(t, err)
	for range 2 { // queries of the business
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
	}
	op := idem.Operation{Name: "op", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}
	_, err = idem.Do(t.Context(), e, op.Key("acme", "a"), 1, func(context.Context, int) (int, error) {
		t.Error("it runs without a claim")
		return 1, nil
	})
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
}

// A call waits for a connection that others hold for longer than one try takes.
func TestACallWaitsForAConnection(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), postgres.Shared(t).Database(t)+"&pool_max_conns=2")
	require.NoError(t, err)
	defer pool.Close()
	s := storeOver(t, pool)
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		time.AfterFunc(1500*time.Millisecond, conn.Release)
	}
	_, err = s.Get(t.Context(), "acme#op#a")
	require.NoError(t, err)
}

// Only a server that cannot be reached is down: no credentials say nothing of it.
func TestWhatIsAnOutage(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close() // the system accepts connections, and no server answers
	none, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	none.Close()
	denied := errors.New("no credentials")
	for name, c := range map[string]struct {
		url    string
		before func(context.Context, *pgx.ConnConfig) error
		down   bool
	}{
		"silent":  {"postgres://" + silent.Addr().String() + "/x?sslmode=disable", nil, true},
		"refused": {"postgres://" + none.Addr().String() + "/x?sslmode=disable", nil, true},
		"no credentials": {postgres.Shared(t).Database(t),
			func(context.Context, *pgx.ConnConfig) error { return denied }, false},
		"no such database": {postgres.Shared(t).URL() + "&dbname=none", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := pgxpool.ParseConfig(c.url)
			require.NoError(t, err)
			config.BeforeConnect = c.before
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			defer pool.Close()
			s, err := pgstore.New(pool)
			require.NoError(t, err)
			budget := time.Minute
			if c.down { // it is tried again until then
				budget = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			_, err = s.Get(ctx, "acme#op#a")
			failed := new(protocol.StoreError)
			require.ErrorAs(t, err, &failed)
			require.Equal(t, c.down, failed.Down, err)
			if c.before != nil {
				require.ErrorIs(t, err, denied)
			}
		})
	}
}
