package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/redisstore"
	"github.com/idem-go/idempotency/idem/testenv/redis"
)

// Why Lossy refuses what is not repeatable: a master confirms a claim and ends before its replica has it. The replica
// takes over without the claim, and a second execution happens while the first one runs. Neither of the callers can
// know.
func TestAFailoverLosesAClaim(t *testing.T) {
	t.Parallel()
	shards := redis.Cluster(t, 3, 1)
	shard := shards[0]
	s := newShop(t, connect(t, shards[1].Master.Address(), shards[2].Master.Address()))
	id := orderOn(t, s, shard.Master.Address())
	s.handler = func(context.Context, string) (string, error) {
		// The claim is confirmed. The replica stands still since before, and the master ends.
		shard.Master.Kill()
		require.NoError(t, syscall.Kill(shard.Replicas[0].PID(), syscall.SIGCONT))
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(100 * time.Millisecond) {
			// Another process.
			other, err := idem.New(s.store, nil)
			require.NoError(t, err)
			got, err := idem.Do(t.Context(), other, order.Key("acme", id), id, func(context.Context, string) (string, error) {
				s.runs.Add(1)
				return "second", nil
			})
			if err == nil {
				return "first", nil
			}
			require.Empty(t, got)
		}
		return "", errors.New("the replica does not take over")
	}
	did(t, connect1(t, shard.Master.Address()), "WAIT", "1", "60000") // the replica has what was before
	require.NoError(t, syscall.Kill(shard.Replicas[0].PID(), syscall.SIGSTOP))
	did(t, connect1(t, shard.Master.Address()), "CLIENT", "KILL", "TYPE", "replica") // or its socket has the claim
	got, err := s.order(id)
	require.EqualValues(t, 2, s.runs.Load(), "the operation is not repeatable")
	require.NoError(t, err)
	require.Equal(t, "second", got, "the outcome of the other one, which the record has")

	// A server that is declared as what it is runs nothing of the kind.
	lossy, _ := open(t, s.client, redisstore.Lossy)
	s.engine, err = idem.New(lossy, nil)
	require.NoError(t, err)
	_, err = s.order(id)
	require.ErrorAs(t, err, new(*idem.ConfigError))
	require.EqualValues(t, 2, s.runs.Load())
}

// orderOn is the name of an order whose record is on the node.
func orderOn(t *testing.T, s *shop, address string) string {
	t.Helper()
	node := connect1(t, address)
	for id := 'a'; ; id++ {
		_, err := s.order(string(id))
		require.NoError(t, err)
		s.runs.Store(0)
		keys, err := do(t, node, "KEYS", "*:row:"+order.Key("acme", string(id)).ID()).AsStrSlice()
		require.NoError(t, err)
		if len(keys) == 1 {
			require.NoError(t, node.Do(t.Context(), node.B().Arbitrary("DEL").Keys(keys[0]).Build()).Error())
			return string(id)
		}
	}
}

// Slots that move, and a cluster that is partly down: what cannot be done is certain, the rest works.
func TestAClusterThatChanges(t *testing.T) {
	t.Parallel()
	shards := redis.Cluster(t, 3, 0)
	from, to := connect1(t, shards[0].Master.Address()), connect1(t, shards[1].Master.Address())
	s := newShop(t, connect(t, shards[1].Master.Address()))
	id := orderOn(t, s, shards[0].Master.Address())
	var key string // of the row
	slot, ids := "", map[valkey.Client]string{}
	for _, node := range []valkey.Client{from, to} {
		var err error
		ids[node], err = do(t, node, "CLUSTER", "MYID").ToString()
		require.NoError(t, err)
	}
	host, port, err := net.SplitHostPort(shards[1].Master.Address())
	require.NoError(t, err)
	s.handler = func(context.Context, string) (string, error) {
		keys, err := do(t, from, "KEYS", "*:row:"+order.Key("acme", id).ID()).AsStrSlice()
		require.NoError(t, err)
		key = keys[0]
		n, err := do(t, from, "CLUSTER", "KEYSLOT", key).ToInt64()
		require.NoError(t, err)
		slot = fmt.Sprint(n)
		did(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
		did(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
		did(t, from, "MIGRATE", host, port, key, "0", "10000")
		return "ordered " + id, nil
	}
	_, err = s.order(id)
	require.NoError(t, err)
	within, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Error(t, s.engine.Flush(within), "the row is on the one node, the set of what is due on the other")
	_, err = s.order(id)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	all, err := do(t, from, "CLUSTER", "GETKEYSINSLOT", slot, "100").AsStrSlice()
	require.NoError(t, err)
	did(t, from, append([]string{"MIGRATE", host, port, "", "0", "10000", "KEYS"}, all...)...)
	rec, err := s.store.Get(t.Context(), order.Key("acme", id).ID())
	require.NoError(t, err, "a read goes where the answer says")
	require.NotNil(t, rec)
	for _, node := range []valkey.Client{to, from} {
		did(t, node, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
	}
	require.NoError(t, s.engine.Flush(t.Context()), "it has moved")
	got, err := s.order(id)
	require.NoError(t, err)
	require.Equal(t, "ordered "+id, got)
	require.EqualValues(t, 1, s.runs.Load())

	shards[2].Master.Kill()
	require.Eventually(t, func() bool {
		return do(t, to, "HMGET", key, "version").Error() != nil
	}, time.Minute, 100*time.Millisecond)
	_, err = s.order(id)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	on, _ := open(t, to, redisstore.Durable) // asks the node that has the slot
	err = acquire(t, on, id)
	failed := new(protocol.StoreError)
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "CLUSTERDOWN")
	require.True(t, failed.Down && !failed.Ambiguous, "%v", err)
}
