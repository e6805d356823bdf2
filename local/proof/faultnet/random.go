package faultnet

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// The names of the faults that [Random] throws.
const (
	KilledBefore = "killed before the call"
	KilledAfter  = "killed before the reply"
	KilledWith   = "killed with the reply"
	CallLost     = "call lost"
	ReplyLost    = "reply lost"
	CutLate      = "connection cut, call arrives late"
	SilentLate   = "silence, call arrives late"
	Conflicted   = "transaction conflict"
)

// Random throws faults at random, and counts them.
type Random struct {
	kill func(*Call)
	odds func(op string) (percent float64, of []string)

	mu    sync.Mutex
	rand  *rand.Rand
	count map[string]int
	pids  map[int]bool
}

// NewRandom throws one of several faults at a percentage of the calls, as odds says of each
// operation. Processes are killed by kill.
func NewRandom(seed uint64, kill func(*Call), odds func(op string) (percent float64, of []string)) *Random {
	return &Random{kill: kill, odds: odds, rand: rand.New(rand.NewPCG(seed, 1)), count: map[string]int{},
		pids: map[int]bool{}}
}

// Rule is a [Rule]. Of the faults that fit a call it takes one that was thrown least: whether
// all occur is not left to chance.
func (r *Random) Rule(c *Call) Fault {
	percent, of := r.odds(c.Operation)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rand.Float64()*100 >= percent {
		return nil
	}
	rarest := slices.MinFunc(of, func(a, b string) int { return r.count[a] - r.count[b] })
	of = slices.DeleteFunc(slices.Clone(of), func(name string) bool { return r.count[name] > r.count[rarest] })
	name := of[r.rand.IntN(len(of))]
	late := time.Duration(20+r.rand.IntN(1500)) * time.Millisecond
	r.count[name]++
	switch name {
	case KilledBefore, KilledAfter, KilledWith:
		r.pids[c.PID] = true
	}
	return map[string]Fault{
		KilledBefore: KillBefore(r.kill), KilledAfter: KillAfter(r.kill), KilledWith: KillWith(r.kill),
		CallLost: LoseRequest, ReplyLost: LoseReply, CutLate: LoseAndArrive(late), SilentLate: Delay(late),
		Conflicted: Conflict,
	}[name]
}

// Count counts the faults by their names.
func (r *Random) Count() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.count)
}

// Killed reports whether a process was killed.
func (r *Random) Killed(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pids[pid]
}
