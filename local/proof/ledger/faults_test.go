package ledger

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// What the network does to a call.
const (
	killBefore = "killed before the call"
	killAfter  = "killed before the reply"
	killWith   = "killed with the reply"
	lostCall   = "call lost"
	lostReply  = "reply lost"
	lateCut    = "connection cut, call arrives late"
	lateHang   = "silence, call arrives late"
	conflict   = "transaction conflict"
	// No try of a transaction is answered, and the first one arrives late: while its
	// attempt still tries, or after it has given up.
	stuckSoon  = "no try answered, one arrives soon"
	stuckLater = "no try answered, one arrives when all is over"
)

// everyStuck: one in so many transactions is stuck.
const everyStuck = 5

// faults does to one call in so many what networks, DynamoDB and the operating system
// do.
type faults struct {
	of    func(op string) (percent int, of []string)
	tally *tally
	kill  func(*faultnet.Call)

	mu sync.Mutex
	// stick has one in everyStuck transactions stuck.
	stick  bool
	rand   *rand.Rand
	thrown map[string]int
}

func newFaults(seed uint64, tally *tally, pool *runtime.Pool, of func(op string) (int, []string)) *faults {
	return &faults{of: of, tally: tally, kill: faultnet.Caller(pool), rand: rand.New(rand.NewPCG(seed, 1)), thrown: map[string]int{}}
}

// rule is a [faultnet.Rule].
func (f *faults) rule(c *faultnet.Call) faultnet.Fault {
	name, delay := f.throw(c.Operation, f.tally.commit(c))
	if name != "" {
		f.tally.inject(name)
	}
	switch name {
	case killBefore:
		return faultnet.KillBefore(f.kill)
	case killAfter:
		return faultnet.KillAfter(f.kill)
	case killWith:
		return faultnet.KillWith(f.kill)
	case lostCall:
		return faultnet.LoseRequest
	case lostReply:
		return faultnet.LoseReply
	case lateHang:
		return faultnet.Delay(delay)
	case lateCut:
		return faultnet.LoseAndArrive(delay)
	case stuckSoon:
		return faultnet.LoseAndArrive(delay / 10)
	case stuckLater:
		return faultnet.LoseAndArrive(delay + timeout)
	case conflict:
		return faultnet.Conflict
	}
	return nil
}

// throw decides about a call, with a delay for what comes late. Of the faults that fit a call
// it takes one that was thrown least: whether all occur is not left to chance.
func (f *faults) throw(op string, c *commit) (fault string, delay time.Duration) {
	percent, of := f.of(op)
	f.mu.Lock()
	defer f.mu.Unlock()
	stuck := c != nil && f.stick && c.number%everyStuck == 0
	switch {
	case stuck && c.thrown:
		fault = lostCall
	case stuck:
		fault = []string{stuckSoon, stuckLater}[c.number/everyStuck%2]
		c.thrown = true
	case f.rand.IntN(100) >= percent:
		return "", 0
	default:
		rarest := slices.MinFunc(of, func(a, b string) int { return f.thrown[a] - f.thrown[b] })
		of = slices.DeleteFunc(slices.Clone(of), func(name string) bool { return f.thrown[name] > f.thrown[rarest] })
		fault = of[f.rand.IntN(len(of))]
		f.thrown[fault]++
	}
	return fault, time.Duration(20+f.rand.IntN(1500)) * time.Millisecond
}
