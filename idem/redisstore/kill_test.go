package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/testenv/outage"
	"github.com/idem-go/idempotency/idem/testenv/redis"
)

// Whenever a durable server is killed, also between a change and its reply: an order that is not repeatable runs once
// at most, and an outcome that its caller has is there.
func TestKilledServers(t *testing.T) {
	server := redis.Start(t, "appendonly=yes", "appendfsync=always", "maxmemory-policy=noeviction")
	s := newShop(t, connect(t, server.Address()))
	require.NoError(t, s.store.Check(t.Context()))
	var runs sync.Map // *atomic.Int64 by order
	s.handler = func(_ context.Context, id string) (string, error) {
		n, _ := runs.LoadOrStore(id, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		return "ordered " + id, nil
	}
	orders := outage.WhileKilled(t, server, s.order)

	require.Eventually(t, func() bool { return s.engine.Flush(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
	orders.Require(t, func(id string) idem.State {
		rec, err := s.store.Get(t.Context(), order.Key("acme", id).ID())
		require.NoError(t, err)
		state, ran := idem.Absent, int64(0)
		if n, ok := runs.Load(id); ok {
			ran = n.(*atomic.Int64).Load()
		}
		if rec != nil {
			state = rec.State
		}
		require.LessOrEqual(t, ran, int64(1), "order %s, %s, runs twice", id, state)
		if state == idem.Completed {
			require.EqualValues(t, 1, ran, "order %s has an outcome without a run", id)
		}
		return state
	})
}
