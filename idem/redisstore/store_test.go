package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/redisstore"
	"github.com/idem-go/idempotency/idem/testenv/outage"
	"github.com/idem-go/idempotency/idem/testenv/redis"
)

func TestNewSaysWhatIsMissing(t *testing.T) {
	client := connect(t, redis.Start(t).Address())
	for problem, c := range map[string]struct {
		client valkey.Client
		o      redisstore.Options
	}{
		"the client is nil":  {nil, redisstore.Options{Promise: redisstore.Durable}},
		"Promise is missing": {client, redisstore.Options{}},
		"Promise is 7":       {client, redisstore.Options{Promise: 7}},
		"Prefix is \"a{b\"":  {client, redisstore.Options{Promise: redisstore.Lossy, Prefix: "a{b"}},
	} {
		_, err := redisstore.New(c.client, c.o)
		require.ErrorContains(t, err, problem)
		require.ErrorAs(t, err, new(*protocol.ConfigError))
	}
}

// What a server that loses what it has confirmed cannot keep is refused before anything runs. The rest works.
func TestLossyRefusesWhatIsNotRepeatable(t *testing.T) {
	client := connect(t, redis.Start(t).Address())
	store, _ := open(t, client, redisstore.Lossy)
	over, err := limit.Over(store, map[string]limit.PerTenant{"order": {Keys: 100, Window: time.Minute}})
	require.NoError(t, err)
	engine, err := idem.New(over, nil)
	require.NoError(t, err)
	repeatable := idem.Operation{Name: "repeatable", Repeat: idem.Repeatable}
	refused := func(err error) {
		t.Helper()
		require.ErrorAs(t, err, new(*idem.ConfigError))
		require.ErrorContains(t, err, "redisstore.Durable")
		size, err := do(t, client, "DBSIZE").ToInt64()
		require.NoError(t, err)
		require.Zero(t, size)
	}
	unreached := func(context.Context, string) (string, error) { panic("it runs") }
	_, err = idem.Do(t.Context(), engine, order.Key("acme", "a"), "a", unreached)
	refused(err)
	_, err = later.Accept[string](t.Context(), engine, repeatable.Key("acme", "a"), "a", nil)
	refused(err)
	steps := 0
	run := func(ctx context.Context, id string) (string, error) {
		_, once := idem.Step(ctx, "once", func(context.Context) (string, error) { steps++; return "", nil },
			&idem.StepConfig[string]{Semantics: idem.AtMostOnce})
		require.ErrorAs(t, once, new(*idem.ConfigError))
		return idem.Step(ctx, "again", func(context.Context) (string, error) { return "ordered " + id, nil }, nil)
	}
	_, err = idem.Do(t.Context(), engine, repeatable.Key("acme", "a"), "a", run)
	require.NoError(t, err)
	require.Zero(t, steps)
}

func TestUnitsAreRefused(t *testing.T) {
	s := newShop(t, connect(t, redis.Start(t).Address()))
	atomic := idem.Operation{Name: "atomic", Repeat: idem.Repeatable, Mode: idem.Atomic}
	_, err := idem.Do(t.Context(), s.engine, atomic.Key("acme", "a"), "a", func(context.Context, string) (string, error) {
		panic("it runs")
	})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "pgstore")
	s.handler = func(ctx context.Context, _ string) (string, error) {
		_, err := idem.UnitOf(ctx, func() idem.Unit { panic("it is made") })
		return "", err
	}
	_, err = s.order("a")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := redis.Start(t, "appendonly=yes", "appendfsync=always", "maxmemory-policy=noeviction")
	client := connect(t, server.Address())
	durable, _ := open(t, client, redisstore.Durable)
	lossy, _ := open(t, client, redisstore.Lossy)
	wrong := func(s *redisstore.Store, problem string) {
		t.Helper()
		err := s.Check(t.Context())
		if problem == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, problem)
		require.ErrorAs(t, err, new(*protocol.ConfigError))
	}
	set := func(name, value string) { t.Helper(); did(t, client, "CONFIG", "SET", name, value) }
	wrong(durable, "")
	set("appendfsync", "everysec")
	wrong(durable, "has appendfsync everysec")
	wrong(lossy, "")
	set("appendonly", "no")
	wrong(durable, "has appendonly no")
	wrong(lossy, "")
	set("appendonly", "yes")
	set("appendfsync", "always")
	set("no-appendfsync-on-rewrite", "yes")
	wrong(durable, "has no-appendfsync-on-rewrite yes")
	wrong(lossy, "")
	watched, _ := open(t, sentinel{client}, redisstore.Durable)
	wrong(watched, "has a replica that takes over")
	set("maxmemory-policy", "allkeys-lru")
	wrong(lossy, "has maxmemory-policy allkeys-lru")
	did(t, client, "ACL", "SETUSER", "default", "-config")
	wrong(lossy, "has maxmemory-policy allkeys-lru") // INFO says it too
	did(t, client, "ACL", "SETUSER", "default", "+config")
	set("maxmemory-policy", "noeviction")
	did(t, client, "ACL", "SETUSER", "default", "-config")
	wrong(durable, "") // what it cannot know
	did(t, client, "ACL", "SETUSER", "default", "+config")
	set("appendonly", "no")
	did(t, client, "ACL", "SETUSER", "default", "-config")
	wrong(durable, "has appendonly no") // INFO says it too
	wrong(lossy, "")
	managed := outage.NewProxy(t, server.Address())
	managed.OnReply(strings.NewReplacer("os:Linux ", "os:Amazon", "os:Darwin ", "os:Amazon ").Replace)
	memoryDB, _ := open(t, connect(t, managed.Addr().String()), redisstore.Durable)
	wrong(memoryDB, "")
	managed.OnReply(strings.NewReplacer("-NOPERM ", "-ERR ").Replace)
	wrong(memoryDB, "") // of a server without the command
	did(t, client, "ACL", "SETUSER", "default", "-info")
	require.ErrorContains(t, lossy.Check(t.Context()), "cannot be checked: idem: store: NOPERM")
	did(t, client, "ACL", "SETUSER", "default", "+info")
	did(t, client, "REPLICAOF", "127.0.0.1", "1")
	wrong(lossy, "is a replica")
	server.Kill()
	require.ErrorIs(t, lossy.Check(t.Context()), protocol.ErrStoreUnavailable)

	shards := redis.Cluster(t, 3, 1, "maxmemory-policy=noeviction")
	client = connect(t, shards[0].Master.Address())
	lossy, _ = open(t, client, redisstore.Lossy)
	wrong(lossy, "")
	durable, _ = open(t, client, redisstore.Durable)
	for _, shard := range shards {
		did(t, connect1(t, shard.Master.Address()), "CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
	}
	wrong(durable, "has a replica that takes over")
	for _, shard := range shards {
		did(t, connect1(t, shard.Master.Address()), "CONFIG", "SET", "cluster-replica-no-failover", "yes")
	}
	wrong(durable, "")
	did(t, connect1(t, shards[2].Master.Address()), "CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	wrong(lossy, "redisstore: the server "+shards[2].Master.Address()+": has maxmemory-policy volatile-ttl")
}

// sentinel is a client that asks a Sentinel for the master.
type sentinel struct{ valkey.Client }

func (sentinel) Mode() valkey.ClientMode { return valkey.ClientModeSentinel }

// A server whose clock is ahead would remove records too early.
func TestCheckComparesTheClocks(t *testing.T) {
	p := outage.NewProxy(t, redis.Start(t, "maxmemory-policy=noeviction").Address())
	store, _ := open(t, connect(t, p.Addr().String()), redisstore.Lossy)
	require.NoError(t, store.Check(t.Context()))
	says := func(first string) error {
		p.OnReply(strings.NewReplacer("server_time_usec:1", "server_time_usec:"+first).Replace)
		return store.Check(t.Context())
	}
	require.NoError(t, says("0"), "one that is behind keeps them longer")
	err := says("9")
	require.ErrorContains(t, err, "ahead of this one's")
	require.ErrorAs(t, err, new(*protocol.ConfigError))
}

// A user with what the package's documentation lists can do everything.
func TestTheLeastThatAUserNeeds(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "An ACL needs ")
	require.True(t, found)
	list, _, found = strings.Cut(list, "\n//\n")
	require.True(t, found)
	server := redis.Start(t, "appendonly=yes", "appendfsync=everysec", "maxmemory-policy=noeviction")
	did(t, connect(t, server.Address()), append([]string{"ACL", "SETUSER", "function", "on", ">secret", "~idem:*"},
		regexp.MustCompile(`\+[\w|]+`).FindAllString(list, -1)...)...)
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{server.Address()}, DisableCache: true,
		Username: "function", Password: "secret"})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	store, err := redisstore.New(client, redisstore.Options{Promise: redisstore.Lossy})
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()))
	durable, err := redisstore.New(client, redisstore.Options{Promise: redisstore.Durable})
	require.NoError(t, err)
	require.ErrorContains(t, durable.Check(t.Context()), "has appendfsync everysec")
	engine, err := idem.New(store, nil)
	require.NoError(t, err)
	op := idem.Operation{Name: "op", Repeat: idem.Repeatable, Watch: idem.WatchAlways}
	run := func(ctx context.Context, id string) (string, error) {
		return idem.Step(ctx, "a", func(context.Context) (string, error) { return strings.Repeat("x", 10<<10), nil }, nil)
	}
	for range 2 {
		got, err := idem.Do(t.Context(), engine, op.Key("acme", "a"), "a", run)
		require.NoError(t, err)
		require.Len(t, got, 10<<10)
	}
	rec, err := store.Get(t.Context(), op.Key("acme", "a").ID())
	require.NoError(t, err)
	audit := &protocol.Audit{ID: rec.ID, Entry: "a", At: time.Now(), ExpiresAt: time.Now().Add(-time.Hour)}
	_, err = store.Due(t.Context(), protocol.DueQuery{Until: time.Now(), Limit: 1})
	require.NoError(t, err)
	page, err := store.Scan(t.Context(), protocol.ScanQuery{Segments: 1})
	require.NoError(t, err)
	require.Len(t, page.Records, 1)
	require.NoError(t, store.Forget(t.Context(), time.Now(), protocol.Erasure{ID: rec.ID, Seen: rec.Write, Audit: audit}))
	_, err = store.AuditOf(t.Context(), rec.ID, "")
	require.NoError(t, err)
}

// Each group has a slot in its own part of all slots: a cluster that shares them evenly shares the groups evenly.
func TestGroupsAreSpread(t *testing.T) {
	client := connect(t, redis.Start(t, "cluster-enabled=yes").Address())
	require.Len(t, redisstore.Tags, 2*casstore.Groups)
	for g := range casstore.Groups {
		slot, err := do(t, client, "CLUSTER", "KEYSLOT", "{"+redisstore.Tags[2*g:2*g+2]+"}").ToInt64()
		require.NoError(t, err)
		require.EqualValues(t, g, slot*casstore.Groups/16384, "slot %d", slot)
	}
}

// What has ended expires, with its parts. What is open does not, also if it had an expiry before.
func TestExpiry(t *testing.T) {
	client := connect(t, redis.Start(t).Address())
	store, prefix := open(t, client, redisstore.Durable)
	engine, err := idem.New(store, nil)
	require.NoError(t, err)
	op := idem.Operation{Name: "op", Repeat: idem.Repeatable, Retention: time.Hour, Watch: idem.WatchNever}
	ttl := func(id string) time.Duration {
		ms, err := client.Do(t.Context(), client.B().Pttl().Key(rowKey(prefix, op.Key("acme", id).ID())).Build()).ToInt64()
		require.NoError(t, err)
		return time.Duration(ms) * time.Millisecond
	}
	large := string(make([]byte, 100<<10))
	_, err = idem.Do(t.Context(), engine, op.Key("acme", "a"), "a", func(ctx context.Context, _ string) (string, error) {
		require.Positive(t, ttl("a"), "nothing has happened")
		_, err := idem.Step(ctx, "a", func(context.Context) (string, error) { return "", nil }, nil)
		require.Negative(t, ttl("a"), "it is half done")
		return large, err
	})
	require.NoError(t, err)
	rec, err := store.Get(t.Context(), op.Key("acme", "a").ID())
	require.NoError(t, err)
	require.Less(t, ttl("a"), time.Until(rec.ExpiresAt)+61*time.Second)
	require.Greater(t, ttl("a")+time.Second, time.Until(rec.ExpiresAt)+time.Minute, "and a minute longer")

	short := op
	short.Name, short.Retention = "short", time.Second
	_, err = idem.Do(t.Context(), engine, short.Key("acme", "a"), "a",
		func(context.Context, string) (string, error) { return "", nil })
	require.NoError(t, err)
	key := rowKey(prefix, short.Key("acme", "a").ID())
	require.NoError(t, client.Do(t.Context(), client.B().Pexpire().Key(key).Milliseconds(1).Build()).Error())
	require.Eventually(t, func() bool {
		rec, err := store.Get(t.Context(), short.Key("acme", "a").ID())
		return err == nil && rec == nil
	}, time.Minute, time.Millisecond)
}

// Changes of operators expire, their names are removed by later ones, and pauses have theirs.
func TestChangesExpire(t *testing.T) {
	client := connect(t, redis.Start(t).Address())
	store, prefix := open(t, client, redisstore.Durable)
	pause := protocol.Pause{Operation: "op", Who: "me"}
	now, seen := time.Now(), ""
	write := func(n int, expires time.Time) {
		t.Helper()
		w := protocol.PausedWrite{Paused: protocol.Paused{Pauses: []protocol.Pause{pause}, Write: fmt.Sprint(n)}, Seen: seen,
			Audit: &protocol.Audit{ID: pause.ID(), Entry: fmt.Sprint(n), At: now.Add(time.Duration(n) * time.Hour),
				ExpiresAt: expires}}
		seen = fmt.Sprint(n)
		require.NoError(t, store.WritePaused(t.Context(), w))
	}
	names := func() (n int) {
		for g := range casstore.Groups {
			key := prefix + ":{" + redisstore.Tags[2*g:2*g+2] + "}:changes"
			size, err := client.Do(t.Context(), client.B().Zcard().Key(key).Build()).AsInt64()
			require.NoError(t, err)
			n += int(size)
		}
		return n
	}
	listed := func() (entries []string) {
		t.Helper()
		p, err := store.AuditOf(t.Context(), pause.ID(), "")
		require.NoError(t, err)
		for _, a := range p.Entries {
			entries = append(entries, a.Entry)
		}
		var between []string
		for shard := range protocol.AuditShards {
			p, err := store.AuditBetween(t.Context(), shard, now, now.Add(24*time.Hour), "")
			require.NoError(t, err)
			for _, a := range p.Entries {
				between = append(between, a.Entry)
			}
		}
		require.Equal(t, entries, between)
		return entries
	}
	write(1, time.Time{})
	write(2, now.Add(time.Hour))
	require.Equal(t, []string{"1", "2"}, listed())
	require.Equal(t, 5, names())
	write(3, now.Add(-time.Hour)) // has expired
	require.Equal(t, []string{"1", "2"}, listed())
	require.Equal(t, 5, names(), "its names are removed by the change itself")
	write(4, now.Add(time.Hour))
	require.Equal(t, []string{"1", "2", "4"}, listed())
	require.Equal(t, 8, names())
	page, err := store.RemoveExpired(t.Context(), protocol.ExpiredQuery{Segments: 1, Before: now, Limit: 10})
	require.NoError(t, err)
	require.True(t, page.Done)
}
