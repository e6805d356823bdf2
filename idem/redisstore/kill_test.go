package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/testenv/redis"
)

// Whenever a durable server is killed, also between a change and its reply: an order that is not repeatable runs once
// at most, and an outcome that its caller has is there. IDEM_LONG=1 kills it a hundred times,
// IDEM_KILLS as often as it says.
func TestKilledServers(t *testing.T) {
	kills := 10
	if os.Getenv("IDEM_LONG") == "1" {
		kills = 100
	}
	if n, err := strconv.Atoi(os.Getenv("IDEM_KILLS")); err == nil {
		kills = n
	}
	server := redis.Start(t, "appendonly=yes", "appendfsync=always", "maxmemory-policy=noeviction")
	s := newShop(t, connect(t, server.Address()))
	require.NoError(t, s.store.Check(t.Context()))
	var runs sync.Map // *atomic.Int64 by order
	s.handler = func(_ context.Context, id string) (string, error) {
		n, _ := runs.LoadOrStore(id, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		return "ordered " + id, nil
	}
	var done atomic.Bool
	var orders atomic.Int64
	var answered sync.Map
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() {
			for !done.Load() {
				id := fmt.Sprint(orders.Add(1))
				for try := 0; try < 3 && !done.Load(); try++ {
					got, err := s.order(id)
					if err == nil {
						answered.Store(id, got)
						break
					}
				}
			}
		})
	}
	for range kills {
		time.Sleep(time.Duration(rand.Int64N(int64(100 * time.Millisecond))))
		server.Kill()
		require.NoError(t, server.Start())
	}
	done.Store(true)
	clients.Wait()

	require.Eventually(t, func() bool { return s.engine.Flush(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
	states := map[idem.State]int{}
	many := 0
	for n := range orders.Load() {
		id := fmt.Sprint(n + 1)
		rec, err := s.store.Get(t.Context(), order.Key("acme", id).ID())
		require.NoError(t, err)
		state, ran := idem.Absent, int64(0)
		if n, ok := runs.Load(id); ok {
			ran = n.(*atomic.Int64).Load()
		}
		if rec != nil {
			state = rec.State
		}
		states[state]++
		require.LessOrEqual(t, ran, int64(1), "order %s, %s, runs twice", id, state)
		if state == idem.Completed {
			require.EqualValues(t, 1, ran, "order %s has an outcome without a run", id)
		}
		if got, ok := answered.Load(id); ok {
			many++
			require.Equal(t, idem.Completed, state, "order %s is lost", id)
			require.Equal(t, "ordered "+id, got)
		}
	}
	require.Positive(t, many)
	t.Logf("%d kills, %d orders, %d answered: %v", kills, orders.Load(), many, states)
}
