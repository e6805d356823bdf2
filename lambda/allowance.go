package idemlambda

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// allowance is how the records of an event share its time, if a shorter time-out could not park them. A record
// may use all the time up to the guard, unless other lanes wait for a slot when it has used its allowance: that
// leaves each of their records the operation's MinTime. Then it ends, as it would with a shorter time-out. The fewer
// wait by then, the more it may use.
//
//   - It never has less than its equal share of the event's time. In an event with more work than time
//     a record that is no slower than the others is therefore not ended for one that would not get
//     through either.
//   - It leaves half of the time at most that it has when it begins, and only where at least one record
//     can use that: MinTime is what a record needs to begin, and most of a large event's records end sooner.
//   - The records behind it in its own lane do not count. If it is ended they are redelivered with
//     it, so the time would be of no use to them.
type allowance struct {
	shared bool          // the operation is repeatable, and as often as it needs
	share  time.Duration // an equal share
	least  time.Duration // what a record that waits needs
	slots  int

	mu     sync.Mutex
	rounds []int // how many records, one after the other, the lanes take that wait: those now, and after each that begins
	lanes  int   // at most these lanes: how many records may be ended
}

// claimAndFinish is what a record takes of the event's time in addition to its handler.
const claimAndFinish = 100 * time.Millisecond

// start begins the time of an event with so many records in each lane.
func (a *allowance) start(ctx context.Context, op idem.Operation, lanes []int, slots int) {
	a.shared = op.Repeat == idem.Repeatable && op.MaxAttempts == 0
	a.least, a.slots, a.lanes, a.rounds = minTime(op)+claimAndFinish, slots, len(lanes), make([]int, len(lanes)+1)
	records, longest := 0, 0
	for i := len(lanes) - 1; i >= 0; i-- {
		records, longest = records+lanes[i], max(longest, lanes[i])
		// Until a lane begins all slots work on others, and then it has one.
		a.rounds[i] = (records-longest)/slots + longest
	}
	if guard, ok := ctx.Deadline(); ok && records > 0 {
		a.share = time.Until(guard) / time.Duration(a.rounds[0])
	}
}

// begin notes that the next lane has its slot.
func (a *allowance) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rounds = a.rounds[1:]
	a.lanes = min(a.lanes, len(a.rounds)-1)
}

// within returns a context that ends when the record which begins now has used its allowance, and what
// frees it. Other slots may work off what waits by then, so the context has the guard as its deadline, and
// may end before; with a single slot the deadline is known.
func (a *allowance) within(ctx context.Context) (context.Context, context.CancelFunc) {
	guard, ok := ctx.Deadline()
	if !ok || !a.shared {
		return ctx, func() {}
	}
	begun := time.Now()
	left := guard.Sub(begun)
	half := int(left / 2 / a.least)
	most := func() time.Duration { return max(left-time.Duration(min(a.rounds[0], half))*a.least, a.share) }
	a.mu.Lock()
	defer a.mu.Unlock()
	first := most()
	switch {
	case left-first < a.least-claimAndFinish:
		return ctx, func() {}
	case a.slots == 1:
		return context.WithDeadlineCause(ctx, guard.Add(first-left), idem.ErrOutOfTime)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	timer = time.AfterFunc(first, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch more := most() - time.Since(begun); {
		case a.lanes == 0 || ctx.Err() != nil:
		case more > 0: // fewer wait
			timer.Reset(more)
		default:
			a.lanes--
			cancel(idem.ErrOutOfTime)
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}
