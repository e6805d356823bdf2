package outage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// Server is one that can be killed and started again.
type Server interface {
	Kill()
	Start() error
}

// Orders are what clients have ordered while their server was killed again and again.
type Orders struct {
	kills    int
	count    atomic.Int64
	answered sync.Map // by the order's id
}

// WhileKilled has six clients order, each with an id of its own and up to three times, while the server is killed ten
// times. IDEM_LONG=1 kills it a hundred times, IDEM_KILLS as often as it says. The answer to an order is "ordered "
// and its id.
func WhileKilled(t *testing.T, server Server, order func(id string) (string, error)) *Orders {
	t.Helper()
	o := &Orders{kills: 10}
	if os.Getenv("IDEM_LONG") == "1" {
		o.kills = 100
	}
	if n, err := strconv.Atoi(os.Getenv("IDEM_KILLS")); err == nil {
		o.kills = n
	}
	var done atomic.Bool
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() {
			for !done.Load() {
				id := fmt.Sprint(o.count.Add(1))
				for try := 0; try < 3 && !done.Load(); try++ {
					got, err := order(id)
					if err == nil {
						o.answered.Store(id, true)
						assert.Equal(t, "ordered "+id, got)
						break
					}
					time.Sleep(time.Millisecond) // the engine answers at once while the server is down
				}
			}
		})
	}
	for range o.kills {
		time.Sleep(time.Duration(rand.Int64N(int64(100 * time.Millisecond))))
		server.Kill()
		require.NoError(t, server.Start())
	}
	done.Store(true)
	clients.Wait()
	return o
}

// Require asks for the state of each order, and requires that those that were answered are completed.
func (o *Orders) Require(t *testing.T, state func(id string) idem.State) {
	t.Helper()
	states, many := map[idem.State]int{}, 0
	for n := range o.count.Load() {
		id := fmt.Sprint(n + 1)
		s := state(id)
		states[s]++
		if _, ok := o.answered.Load(id); ok {
			many++
			require.Equal(t, idem.Completed, s, "order %s is lost", id)
		}
	}
	require.Positive(t, many)
	t.Logf("%d kills, %d orders, %d answered: %v", o.kills, o.count.Load(), many, states)
}
