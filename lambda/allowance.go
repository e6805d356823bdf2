package idemlambda

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// allowance is how the records of an event share its time, if a shorter time-out could not park them. A record
// may use all the time up to the guard, unless other lanes wait for a slot when it has used its allowance: that
// leaves each of their records the operation's MinTime. Then it ends, as it would with a shorter time-out.
//
//   - It never has less than its equal share of the event's time. In an event with more work than time
//     a record that is no slower than the others is therefore not ended for one that would not get
//     through either.
//   - It leaves half of its time at most, and only where at least one record can use that: MinTime is
//     what a record needs to begin, and most of a large event's records end sooner.
//   - The records behind it in its own lane do not count. If it is ended they are redelivered with
//     it, so the time would be of no use to them.
type allowance struct {
	shared bool          // the operation is repeatable, and as often as it needs
	share  time.Duration // an equal share
	least  time.Duration // what a record that waits needs
	slots  int

	mu      sync.Mutex
	waiting int // records of the lanes that wait for a slot
	lanes   int // at most these lanes: how many records may be ended
}

// claimAndFinish is what a record takes of the event's time in addition to its handler.
const claimAndFinish = 100 * time.Millisecond

// start begins the time of an event with so many records, in so many lanes.
func (a *allowance) start(ctx context.Context, op idem.Operation, records, lanes, slots int) {
	a.shared = op.Repeat == idem.Repeatable && op.MaxAttempts == 0
	a.least, a.slots, a.waiting, a.lanes = minTime(op)+claimAndFinish, slots, records, lanes
	if guard, ok := ctx.Deadline(); ok && records > 0 {
		a.share = time.Until(guard) / time.Duration(a.rounds())
	}
}

// begin notes that a lane of so many records has its slot, and so many lanes wait.
func (a *allowance) begin(records, lanes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting, a.lanes = a.waiting-records, min(a.lanes, lanes)
}

// rounds is how many of the records that wait each slot works on.
func (a *allowance) rounds() int { return (a.waiting + a.slots - 1) / a.slots }

// of is how much of the time that is left a record may use that begins now.
func (a *allowance) of(left time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	rounds := min(a.rounds(), int(left/2/a.least))
	return max(left-time.Duration(rounds)*a.least, a.share)
}

// within returns a context that ends when the record which begins now has used its allowance, and what
// frees it. Other slots may work off what waits by then, so the context has the guard as its deadline, and
// may end before; with a single slot the deadline is known.
func (a *allowance) within(ctx context.Context) (context.Context, context.CancelFunc) {
	guard, ok := ctx.Deadline()
	left := time.Until(guard)
	most := a.of(left)
	switch {
	case !ok || !a.shared || left-most < a.least-claimAndFinish:
		return ctx, func() {}
	case a.slots == 1:
		return context.WithDeadlineCause(ctx, guard.Add(most-left), idem.ErrOutOfTime)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(most, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.lanes > 0 {
			a.lanes--
			cancel(idem.ErrOutOfTime)
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}
