package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// leastPatience is the budget with which a time-out says something of the store.
const leastPatience = 100 * time.Millisecond

// enter asks the circuit for leave to ask the store. An operation that fails open always
// asks: whether it may run without a claim is for its own call to find out.
func (x *execution) enter() (err error) {
	if x.call.Key.op.OnStoreFailure != FailClosed {
		return nil
	}
	x.asks, err = x.engine.circuit.pass()
	return err
}

func (x *execution) leave() {
	if x.asks {
		x.asks = false
		x.engine.circuit.leave()
	}
}

// heard tells the circuit what the store has said to a call before its handler.
func (x *execution) heard(ctx context.Context, err error) {
	c := &x.engine.circuit
	failed, ok := errors.AsType[*StoreError](err)
	switch {
	case !ok && err != nil && !isAnswer(err) && !errors.Is(err, ErrRecordUnreadable):
		return // nobody knows
	case !ok || !failed.Down && ctx.Err() == nil:
		// Also a store that refuses the request works.
		if c.success() {
			x.notify(ctx, notice.CircuitClosed, notice.Notice{})
		}
	case !failed.Down || ctx.Err() != nil || x.budget < leastPatience && errors.Is(err, context.DeadlineExceeded):
		return // the caller has left, or has given it no time
	default:
		if c.failure(err, x.asks) {
			x.notify(ctx, notice.CircuitOpened, notice.Notice{Err: err})
		}
	}
	x.asks = false
}

// heldHere returns what the record of the call's key is for certain, if that is a claim under
// which a handler of this process runs, and the machine calls it in flight for this call. It
// returns nil, and the store is asked, in every other case: once the handler has returned, is
// being parked or has lost its lease, once the lease that was last written is over by either
// clock, and for another input.
func (x *execution) heldHere() *Record {
	e := x.engine
	l := e.holdings.of(x.call.Key.id)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	rec, until, held := l.a.rec, l.until, l.held
	l.mu.Unlock()
	rec.LeaseUntil, rec.Steps = held, nil
	now := e.now()
	if !now.Before(held) || l.x.kill.IsZero() && !time.Now().Before(until) {
		return nil
	}
	if protocol.Next(&rec, x.claimEvent(), now).Do != protocol.DoInFlight {
		return nil
	}
	return &rec
}
