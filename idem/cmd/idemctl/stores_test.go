package main

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// settles has the command do what operators do with the engine's records, and requires what it says.
func settles(t *testing.T, run func(code int, args ...string) (said string), e *idem.Engine) {
	t.Helper()
	for _, value := range []string{"r-1", "r-2"} {
		_, err := idem.Do(t.Context(), e, refund.Key("acme", value), 1, fails(errCut))
		require.Error(t, err)
	}
	_, err := idem.Do(t.Context(), e, refund.Key("acme", "r-3"), 1, result)
	require.NoError(t, err)
	key := func(command, value string, more ...string) []string {
		return append([]string{command, "--operation", "refund", "--tenant", "acme", "--value", value}, more...)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check"}, exitDone, "is as it must be"},
		{[]string{"list"}, exitDone, r1.ID()},
		{[]string{"list", "--all", "--yes", "--state", "completed"}, exitDone, "completed"},
		{[]string{"stats"}, exitDone, "refund"},
		{[]string{"stats", "--all", "--yes"}, exitDone, "OPERATION"},
		{key("explain", "r-1"), exitDone, "not before"},
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
		said := run(c.code, c.args...)
		require.Contains(t, said, c.want, c.args)
		require.NotContains(t, said, "\x1b", "no terminal, no colour")
	}
}

// on runs the command on the store with the URL.
func on(t *testing.T, url string) func(code int, args ...string) (said string) {
	return func(code int, args ...string) string { return at(t, url, code, args...) }
}

func TestTheCommandSettlesQuestionsInPostgres(t *testing.T) {
	url := postgres.Start(t, "fsync=on").Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	store, err := pgstore.New(pool)
	require.NoError(t, err)
	require.Contains(t, at(t, url, exitFailed, "check"), "has no table idem_rows")
	require.Contains(t, at(t, url, exitFailed, "list"), "(SQLSTATE 42P01) Run the statements of pgstore.Schema, or see "+
		"idemctl check.")
	require.NoError(t, store.Migrate(t.Context()))
	e, err := idem.New(store, nil)
	require.NoError(t, err)
	settles(t, on(t, url), e)
	require.Contains(t, at(t, url, exitDone, "list", "--all"), "This reads all records.")
	require.Contains(t, at(t, url, exitDone, "stats", "--all"), "This reads all records.")
	_, err = idem.Do(t.Context(), e, refund.Key("acme", "m"), 1, pgstore.Transact(store,
		func(ctx context.Context, tx *pgstore.Tx, _ int) (int, error) {
			return 1, tx.Publish("refunded", outbox.Message{Destination: "orders", Type: "refunded", Body: []byte("1")})
		}))
	require.NoError(t, err)
	said := at(t, url, exitDone, "show", "--operation", "refund", "--tenant", "acme", "--value", "m")
	require.Contains(t, said, "to orders: waits")
	require.Contains(t, at(t, url, exitDone, "dead", "list"), "No such dead letters")
	operatorsOfPostgres(t, url, store, pool)

	_, err = pool.Exec(t.Context(), `UPDATE idem_rows SET data = replace(data, '"v":1', '"v":9') WHERE id = $1`, r1.ID())
	require.NoError(t, err)
	said = at(t, url, exitFailed, "show", "--operation", "refund", "--tenant", "acme", "--value", "r-1")
	require.Contains(t, said, "unreadable")
	require.Contains(t, said, "it is of version 9")
}

// looks has the command do what changes nothing.
func looks(t *testing.T, url, id string) {
	t.Helper()
	for _, args := range [][]string{{"list"}, {"list", "--all"}, {"show", id, "--show-result"}, {"explain", id},
		{"history", id}, {"changes"}, {"stats"}, {"stats", "--all"}, {"export", "--all"}, {"pauses"}} {
		at(t, url, exitDone, args...)
	}
}

// operatorsOfPostgres have the grants of the README, and no others.
func operatorsOfPostgres(t *testing.T, of string, store *pgstore.Store, pool *pgxpool.Pool) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	grants := regexp.MustCompile("(?m)^GRANT .*;$").FindAllString(string(text), -1)
	require.NotEmpty(t, grants)
	_, err = pool.Exec(t.Context(), "CREATE ROLE reader LOGIN PASSWORD 'p'; CREATE ROLE operator LOGIN PASSWORD 'p';"+
		strings.Join(grants, ""))
	require.NoError(t, err)
	u, err := url.Parse(of)
	require.NoError(t, err)
	as := func(role string) string { u.User = url.UserPassword(role, "p"); return u.String() }

	e, err := idem.New(store, nil)
	require.NoError(t, err)
	key := refund.Key("acme", "r-9")
	_, err = idem.Do(t.Context(), e, key, 1, fails(errCut))
	require.Error(t, err)
	_, err = pool.Exec(t.Context(), `UPDATE idem_outbox SET state = 'dead', lane = NULL, ended = 1`)
	require.NoError(t, err)
	looks(t, as("reader"), key.ID())
	at(t, as("reader"), exitDone, "dead", "list")
	require.Contains(t, at(t, as("reader"), exitFailed, "check"), "refuses idem_rows INSERT")
	large := filepath.Join(t.TempDir(), "result.json")
	require.NoError(t, os.WriteFile(large, []byte(`"`+strings.Repeat("x", 100<<10)+`"`), 0o600))
	for _, args := range [][]string{
		{"resolve", key.ID(), "--to", "completed", "--result", large, "--yes"},
		{"extend", key.ID(), "--for", "2160h", "--yes"},
		{"forget", key.ID(), "--yes"}, {"pause", "refund", "--yes"}, {"resume", "refund", "--yes"},
	} {
		args = append(args, "--reason", "case 3")
		require.Contains(t, at(t, as("reader"), exitFailed, args...), "permission denied")
		at(t, as("operator"), exitDone, args...)
	}
	requeue := []string{"dead", "requeue", "--destination", "orders", "--reason", "case 3"}
	_, given, _ := strings.Cut(at(t, as("reader"), exitDone, append(requeue, "--dry-run")...), "--seen ")
	requeue = append(requeue, "--seen", strings.Fields(given)[0])
	require.Contains(t, at(t, as("reader"), exitFailed, requeue...), "permission denied")
	at(t, as("operator"), exitDone, requeue...)
}

func TestTheCommandSettlesQuestionsInRedis(t *testing.T) {
	server := redis.Start(t, "appendonly=yes", "appendfsync=everysec", "maxmemory-policy=noeviction")
	text, err := os.ReadFile("../../redisstore/doc.go")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(text), "An ACL needs ")
	list, _, _ = strings.Cut(list, "\n//\n")
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{server.Address()}, DisableCache: true})
	require.NoError(t, err)
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{Promise: redisstore.Durable, Prefix: "shop"})
	require.NoError(t, err)
	user := client.B().Arbitrary("ACL", "SETUSER", "operator", "on", ">secret", "~shop:*").
		Args(regexp.MustCompile(`\+[\w|]+`).FindAllString(list, -1)...).Build()
	require.NoError(t, client.Do(t.Context(), user).Error())
	url := "redis://operator:secret@" + server.Address() + "/0?prefix=shop"
	require.Contains(t, at(t, url, exitUsage, "check"), "?promise=durable")
	require.Contains(t, at(t, url+"&promise=durable", exitFailed, "check"), "has appendfsync everysec")
	require.Contains(t, at(t, url+"&promise=most", exitUsage, "list"), "durable or lossy")
	e, err := idem.New(store, nil)
	require.NoError(t, err)
	settles(t, on(t, url+"&promise=lossy"), e)

	text, err = os.ReadFile("README.md")
	require.NoError(t, err)
	needs := regexp.MustCompile("`(\\+hmget [^`]*)`").FindSubmatch(text)
	require.NotNil(t, needs)
	user = client.B().Arbitrary("ACL", "SETUSER", "reader", "on", ">secret", "~shop:*").
		Args(strings.Fields(string(needs[1]))...).Build()
	require.NoError(t, client.Do(t.Context(), user).Error())
	reader := strings.Replace(url, "operator", "reader", 1)
	looks(t, reader, r1.ID())
	extend := []string{"extend", r1.ID(), "--for", "2160h", "--reason", "case 3", "--yes"}
	require.Contains(t, at(t, reader, exitFailed, extend...), "NOPERM")
	require.Contains(t, at(t, url, exitUsage, "dead", "list"), "Redis keeps no messages: only DynamoDB and Postgres have")
}

func TestStoresThatAreNone(t *testing.T) {
	for url, problem := range map[string]string{
		"mysql://db": "which begins with postgres://", "postgres://%zz": "--store: ",
		"redis://:secret@%zz":    "--store is no URL",
		"redis://:secret/@redis": "--store is no URL", "redis://redis:secret@redis/secret": "--store is no URL",
		"redis://:secret@redis?prefx=shop": `no parameter "prefx": the parameters are prefix, promise, addr, client_cache`,
		"redis://:secret@redis?prefix=a;b": "cannot be read",
		"postgres://127.0.0.1:1/x":         "connection refused",
	} {
		code := exitUsage
		if strings.HasSuffix(url, ":1/x") {
			code = exitFailed
		}
		said := at(t, url, code, "list")
		require.Contains(t, said, problem, url)
		require.NotContains(t, said, "secret")
	}
	said := at(t, "postgres://127.0.0.1:1/x", exitUsage, "list", "--table", "idempotency")
	require.Contains(t, said, "use --store (IDEM_STORE) or --table (IDEM_TABLE), but not both")
	for _, flag := range []string{"--region", "--profile", "--kms-key"} {
		said = at(t, "postgres://127.0.0.1:1/x", exitUsage, "list", flag, "a")
		require.Contains(t, said, flag)
		require.Contains(t, said, "for tables of DynamoDB")
	}
}
