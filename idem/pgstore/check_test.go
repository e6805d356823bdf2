package pgstore_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

func TestCheckSaysWhatIsWrong(t *testing.T) {
	server := postgres.Start(t, "fsync=on")
	s, pool := openURL(t, server.URL())
	require.NoError(t, s.Migrate(t.Context()), "the tables may be there")
	require.NoError(t, s.Check(t.Context()))
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE ROLE reader LOGIN PASSWORD 'secret'")
	exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
	reader := strings.Replace(server.URL(), "postgres://postgres:", "postgres://reader:", 1)
	reader = reader[:strings.LastIndex(reader, "reader:")+7] + "secret" + reader[strings.Index(reader, "@"):]
	for name, c := range map[string]struct{ url, problem string }{
		"grants":             {reader, "refuses idem_rows INSERT"},
		"commits not waited": {server.URL() + "&options=-csynchronous_commit%3Doff", "has synchronous_commit off"},
		"tables": {server.URL() + "&search_path=pg_temp",
			"has no table idem_rows, idem_parts, idem_changes, idem_outbox"},
	} {
		t.Run(name, func(t *testing.T) {
			other, err := pgxpool.New(t.Context(), c.url)
			require.NoError(t, err)
			defer other.Close()
			s, err := pgstore.New(other)
			require.NoError(t, err)
			err = s.Check(t.Context())
			require.ErrorContains(t, err, c.problem)
			require.ErrorAs(t, err, new(*protocol.ConfigError))
		})
	}
	server.Kill()
	require.ErrorIs(t, s.Check(t.Context()), protocol.ErrStoreUnavailable)
}

func TestAPoolOfOneIsRefused(t *testing.T) {
	for url, problem := range map[string]string{"postgres://127.0.0.1/x?pool_max_conns=1": "set pool_max_conns to 2",
		"": "the pool is nil"} {
		var pool *pgxpool.Pool
		if url != "" {
			var err error
			pool, err = pgxpool.New(t.Context(), url)
			require.NoError(t, err)
			defer pool.Close()
		}
		_, err := pgstore.New(pool)
		require.ErrorContains(t, err, problem)
	}
}
