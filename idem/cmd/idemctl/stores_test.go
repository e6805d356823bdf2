package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/redisstore"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
	"github.com/idem-go/idempotency/idem/testenv/redis"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

// at runs the command on the store with the URL, and requires its exit code.
func at(t *testing.T, store string, code int, args ...string) (said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testmain.Program(t, "."), args...)
	cmd.Env = append(os.Environ(), "IDEM_STORE="+store, "USER=alice", "IDEM_TABLE=", "IDEM_DYNAMODB_ENDPOINT=")
	out, _ := cmd.CombinedOutput()
	said = strings.Join(strings.Fields(string(out)), " ")
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "%v: %s", args, said)
	return said
}

// settles has the command do what operators do.
func settles(t *testing.T, url string, store idem.Store) {
	t.Helper()
	e, err := idem.New(store, nil)
	require.NoError(t, err)
	for _, value := range []string{"r-1", "r-2"} {
		_, err := idem.Do(t.Context(), e, refund.Key("acme", value), 1, fails(errCut))
		require.Error(t, err)
	}
	_, err = idem.Do(t.Context(), e, refund.Key("acme", "r-3"), 1, result)
	require.NoError(t, err)
	key := func(command, value string, more ...string) []string {
		return append([]string{command, "--operation", "refund", "--tenant", "acme", "--value", value}, more...)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check"}, exitDone, "is as it must be."},
		{[]string{"list"}, exitDone, r1.ID()},
		{[]string{"list", "--all", "--yes", "--state", "completed"}, exitDone, "completed"},
		{[]string{"stats"}, exitDone, "refund"},
		{key("explain", "r-1"), exitDone, "unknown"},
		{key("resolve", "r-1", "--to", "failed", "--message", "declined", "--reason", "case 1", "--yes"), exitDone, "Done."},
		{key("resolve", "r-2", "--to", "completed", "--no-result", "--reason", "case 1", "--yes"), exitDone, "Done."},
		{key("history", "r-1"), exitDone, "by alice, with idemctl"},
		{[]string{"changes"}, exitDone, "from unknown to failed"},
		{[]string{"export", "--all", "--yes"}, exitDone, r1.ID()},
		{[]string{"pause", "refund", "--reason", "case 2", "--yes"}, exitDone, "Done."},
		{[]string{"pauses"}, exitDone, "case 2"},
		{[]string{"resume", "refund", "--reason", "case 2", "--yes"}, exitDone, "Done."},
		{key("forget", "r-3", "--reason", "erasure", "--yes"), exitDone, "Done."},
		{key("show", "r-3"), exitFailed, "there is no record"},
	} {
		require.Contains(t, at(t, url, c.code, c.args...), c.want, c.args)
	}
}

func TestTheCommandSettlesQuestionsInPostgres(t *testing.T) {
	url := postgres.Start(t, "fsync=on").Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	store, err := pgstore.New(pool)
	require.NoError(t, err)
	require.Contains(t, at(t, url, exitFailed, "check"), "has no table idem_rows")
	require.NoError(t, store.Migrate(t.Context()))
	settles(t, url, store)

	e, err := idem.New(store, nil)
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), e, refund.Key("acme", "m"), 1, pgstore.Transact(store,
		func(ctx context.Context, tx *pgstore.Tx, _ int) (int, error) {
			return 1, tx.Publish("refunded", outbox.Message{Destination: "orders", Type: "refunded", Body: []byte("1")})
		}))
	require.NoError(t, err)
	said := at(t, url, exitDone, "show", "--operation", "refund", "--tenant", "acme", "--value", "m")
	require.Contains(t, said, "to orders: waits")
	require.Contains(t, at(t, url, exitDone, "dead", "list"), "No such dead letters")

	_, err = pool.Exec(t.Context(), `UPDATE idem_rows SET data = replace(data, '"v":1', '"v":9') WHERE id = $1`, r1.ID())
	require.NoError(t, err)
	said = at(t, url, exitFailed, "show", "--operation", "refund", "--tenant", "acme", "--value", "r-1")
	require.Contains(t, said, "unreadable")
	require.Contains(t, said, "it is of version 9")
}

func TestTheCommandSettlesQuestionsInRedis(t *testing.T) {
	server := redis.Start(t, "appendonly=yes", "appendfsync=everysec", "maxmemory-policy=noeviction")
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{server.Address()}, DisableCache: true})
	require.NoError(t, err)
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{Promise: redisstore.Durable, Prefix: "shop"})
	require.NoError(t, err)
	url := "redis://" + server.Address() + "/0?prefix=shop"
	require.Contains(t, at(t, url, exitUsage, "check"), "?promise=durable")
	require.Contains(t, at(t, url+"&promise=durable", exitFailed, "check"), "has appendfsync everysec")
	require.Contains(t, at(t, url+"&promise=most", exitUsage, "list"), "durable or lossy")
	settles(t, url+"&promise=lossy", store)
	require.Contains(t, at(t, url, exitUsage, "dead", "list"), "the store has no outbox")
}

func TestStoresThatAreNone(t *testing.T) {
	for url, problem := range map[string]string{
		"mysql://db": "which begins with postgres://", "postgres://%zz": "--store: ",
		"redis://:secret@%zz":    "--store is no URL",
		"redis://:secret/@redis": "--store is no URL", "redis://redis:secret@redis/secret": "--store is no URL",
		"postgres://127.0.0.1:1/x": "connection refused",
	} {
		code := exitUsage
		if strings.HasSuffix(url, ":1/x") {
			code = exitFailed
		}
		said := at(t, url, code, "list")
		require.Contains(t, said, problem, url)
		require.NotContains(t, said, "secret")
	}
}
