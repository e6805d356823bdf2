package idem

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// waiter polls until an attempt in flight ends.
type waiter struct {
	engine *Engine
	until  time.Time
	pause  time.Duration
}

func (x *execution) waiting(ctx context.Context) *waiter {
	w := &waiter{engine: x.engine, pause: 25 * time.Millisecond}
	if wait := x.engine.opts.Wait; wait > 0 {
		w.until = time.Now().Add(wait)
		// Enough time is left to answer that the attempt is still in flight.
		reserve := -2*x.guard - x.budget
		if end, ok := ctx.Deadline(); ok {
			w.until = earlier(w.until, end.Add(reserve))
		}
		if !x.endByEngine.IsZero() {
			w.until = earlier(w.until, time.Now().Add(x.endByEngine.Sub(x.engine.now())+reserve))
		}
		if end := x.call.WaitUntil; !end.IsZero() {
			w.until = earlier(w.until, end)
		}
	}
	return w
}

// timeFor reports whether there is still time for what the record calls for. A claim
// needs as much as when the call began, any answer needs none.
func (x *execution) timeFor(ctx context.Context, seen *Record) bool {
	if x.call.NoClaim != nil {
		return true
	}
	if seen != nil {
		d := protocol.Next(seen, x.claimEvent(), x.engine.now()).Do
		if d != protocol.DoReplace && d != protocol.DoTakeOver {
			return true
		}
	}
	return x.schedule(ctx) == nil
}

// poll waits and reads the record until it is not in flight any more, and returns
// it as last read. It returns false when the waiting is over; waiting never
// changes the record.
func (w *waiter) poll(ctx context.Context, seen *Record) (*Record, bool) {
	id := seen.ID
	for {
		pause := w.pause/2 + rand.N(w.pause)
		if time.Now().Add(pause).After(w.until) {
			return seen, false
		}
		select {
		case <-ctx.Done():
			return seen, false
		case <-time.After(pause):
		}
		w.pause = min(w.pause*3/2, 500*time.Millisecond)
		call, cancel := context.WithDeadline(ctx, w.until)
		next, err := w.engine.store.Get(call, id)
		cancel()
		if err != nil {
			continue
		}
		if next == nil || next.State != InProgress || next.Lapsed(w.engine.now(), w.engine.opts.Margin) {
			return next, true
		}
		seen = next
	}
}
