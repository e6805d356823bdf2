package redisstore_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/redisstore"
	"github.com/idem-go/idempotency/idem/storetest"
	"github.com/idem-go/idempotency/idem/testenv/redis"
)

func connect(t *testing.T, addresses ...string) valkey.Client {
	t.Helper()
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: addresses, DisableCache: true, DisableRetry: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// open returns a store with keys of its own.
func open(t *testing.T, client valkey.Client, promise redisstore.Promise) (s *redisstore.Store, prefix string) {
	t.Helper()
	prefix = rand.Text()
	s, err := redisstore.New(client, redisstore.Options{Promise: promise, Prefix: prefix})
	require.NoError(t, err)
	return s, prefix
}

func TestConformance(t *testing.T) {
	conformance(t, connect(t, redis.Start(t).Address()), connect(t, redis.Start(t).Address()))
}

func TestConformanceOfACluster(t *testing.T) {
	shards, others := redis.Cluster(t, 3, 0), redis.Cluster(t, 3, 0)
	client := connect(t, shards[0].Master.Address())
	require.Equal(t, valkey.ClientModeCluster, client.Mode())
	t.Run("suite", func(t *testing.T) { conformance(t, client, connect(t, others[0].Master.Address())) })
	for _, shard := range shards {
		n, err := connect1(t, shard.Master.Address()).Do(t.Context(), client.B().Dbsize().Build()).AsInt64()
		require.NoError(t, err)
		require.Positive(t, n, "there are rows on each node")
	}
}

// connect1 connects to one node.
func connect1(t *testing.T, address string) valkey.Client {
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}, DisableCache: true,
		DisableRetry: true, ForceSingleClient: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// conformance runs the suite on the client's server, and on another one what lists all that there is.
func conformance(t *testing.T, client, other valkey.Client) {
	shared, prefix := open(t, client, redisstore.Durable)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		if strings.Contains(t.Name(), "/scan/") {
			for _, node := range other.Nodes() {
				did(t, node, "FLUSHALL")
			}
			s, prefix := open(t, other, redisstore.Durable)
			return harness(s, other, prefix)
		}
		if strings.Contains(t.Name(), "/questions/") {
			s, prefix := open(t, client, redisstore.Durable)
			return harness(s, client, prefix)
		}
		return harness(shared, client, prefix)
	})
}

func rowKey(prefix, id string) string {
	tag := redisstore.Tags[2*casstore.Group(id):][:2]
	return prefix + ":{" + tag + "}:row:" + id
}

func harness(s *redisstore.Store, client valkey.Client, prefix string) storetest.Harness {
	do := func(ctx context.Context, id, command string, args ...string) valkey.ValkeyResult {
		return client.Do(ctx, client.B().Arbitrary(command).Keys(rowKey(prefix, id)).Args(args...).Build())
	}
	data := func(from, to string) func(context.Context, string) error {
		return func(ctx context.Context, id string) error {
			text, err := do(ctx, id, "HGET", "data").ToString()
			if err != nil {
				return err
			}
			return do(ctx, id, "HSET", "data", strings.Replace(text, from, to, 1)).Error()
		}
	}
	parts := func(change func(ctx context.Context, id, field string) error) func(context.Context, string) error {
		return func(ctx context.Context, id string) error {
			fields, err := do(ctx, id, "HKEYS").AsStrSlice()
			if err != nil {
				return err
			}
			for _, field := range fields {
				if strings.HasPrefix(field, "part:") {
					if err := change(ctx, id, field); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	return storetest.Harness{
		Store: s, Scanner: s, Parallel: true,
		Delete: func(ctx context.Context, id string) error { return do(ctx, id, "DEL").Error() },
		Damages: []storetest.Damage{
			{Name: "newer version", Do: data(`"v":1`, `"v":2`)},
			{Name: "no owner", Do: data(`"owner"`, `"seen"`)},
			{Name: "cut short", Do: data(`}`, ``)},
			{Name: "another version", Do: func(ctx context.Context, id string) error {
				return do(ctx, id, "HSET", "version", "x").Error()
			}},
			{Name: "without a version", Do: func(ctx context.Context, id string) error {
				return do(ctx, id, "HDEL", "version").Error()
			}},
			{Name: "no data", Do: func(ctx context.Context, id string) error { return do(ctx, id, "HDEL", "data").Error() }},
			{Name: "missing part", Parts: true, Do: parts(func(ctx context.Context, id, field string) error {
				return do(ctx, id, "HDEL", field).Error()
			})},
			{Name: "altered part", Parts: true, Do: parts(func(ctx context.Context, id, field string) error {
				return do(ctx, id, "HSET", field, "altered").Error()
			})},
		},
	}
}

var _ protocol.Store = (*redisstore.Store)(nil)
var _ idem.Store = (*redisstore.Store)(nil)
