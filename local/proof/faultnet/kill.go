package faultnet

import (
	"maps"
	"math/rand/v2"
	"sync"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// KillBefore kills the process before the service gets its call.
func KillBefore(kill func(*Call)) Fault {
	return func(c *Call) (*Reply, error) {
		kill(c)
		return nil, ErrReset
	}
}

// KillAfter kills the process when the service has answered, before it gets the reply.
func KillAfter(kill func(*Call)) Fault {
	return func(c *Call) (*Reply, error) {
		_, _ = c.Pass() // nobody hears of it
		kill(c)
		return nil, ErrReset
	}
}

// KillWith kills the process while the reply is on its way.
func KillWith(kill func(*Call)) Fault {
	return func(c *Call) (*Reply, error) {
		r, err := c.Pass()
		c.Later(func() { kill(c) })
		return r, err
	}
}

// Caller kills the instance of a pool that made a call or, where the call does not say,
// one at work.
func Caller(pool *runtime.Pool) func(*Call) {
	return func(c *Call) {
		pid := c.PID
		if pid == 0 {
			at := pool.InFlight()
			if len(at) == 0 {
				return
			}
			pid = at[c.Number%len(at)].PID
		}
		_ = pool.Kill(pid) // it may have been killed over another call
	}
}

// Moments are those at which [Kills] strikes.
var Moments = []string{"before the call", "before the reply", "with the reply"}

// Kills kills processes that tell their id, at random.
type Kills struct {
	kill func(*Call)

	mu    sync.Mutex
	odds  int
	rand  *rand.Rand
	count map[string]int // by the moment
	pids  map[int]bool
}

// NewKills kills by the function one call's process in so many.
func NewKills(odds int, kill func(*Call)) *Kills {
	return &Kills{kill: kill, odds: odds, rand: rand.New(rand.NewPCG(1, 2)), count: map[string]int{}, pids: map[int]bool{}}
}

// Rule is a [Rule].
func (k *Kills) Rule(c *Call) Fault {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rand.IntN(k.odds) != 0 {
		return nil
	}
	at := k.rand.IntN(len(Moments))
	k.count[Moments[at]]++
	k.pids[c.PID] = true
	return []func(func(*Call)) Fault{KillBefore, KillAfter, KillWith}[at](k.kill)
}

// Count counts them by their moment.
func (k *Kills) Count() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.count)
}

// Killed reports whether a process was killed.
func (k *Kills) Killed(pid int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pids[pid]
}
