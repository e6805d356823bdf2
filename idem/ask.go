package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// leastPatience is the budget with which a time-out says something of the store: a new
// connection takes a part of it.
const leastPatience = 200 * time.Millisecond

// enter asks the circuit for leave to ask the store. An operation that fails open always
// asks: whether it may run without a claim is for its own call to find out.
func (x *execution) enter() (err error) {
	if x.mayFailOpen() {
		return nil
	}
	x.asks, err = x.engine.circuit.pass()
	return err
}

// mayFailOpen reports whether the call runs without a claim that it does not get. One in
// shadow runs in any case.
func (x *execution) mayFailOpen() bool {
	op := &x.call.Key.op
	return op.OnStoreFailure != FailClosed && !op.Shadow
}

// heard tells the circuit what the store has said to a call before its handler.
func (x *execution) heard(ctx context.Context, err error) {
	c := &x.engine.circuit
	failed, ok := errors.AsType[*StoreError](err)
	switch {
	case !ok && err != nil && !protocol.Answers(err):
		return // nobody knows
	case ok && failed.Throttled && !x.asks:
		return // it can be reached, and what it cannot take its own quota of retries bounds
	case ok && (ctx.Err() != nil || timedOut(err) && (!failed.Down || x.budget < leastPatience)):
		return // the caller has left, or there was no time to ask
	case !ok || !failed.Down:
		// Also a store that refuses the request works.
		if c.success() {
			x.notify(ctx, notice.CircuitClosed, notice.Notice{})
		}
	default:
		if c.failure(err, x.asks) {
			x.notify(ctx, notice.CircuitOpened, notice.Notice{Err: err})
		}
	}
	x.asks = false
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
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
	if rec.Ticket != "" && x.call.Accepted == nil {
		return nil // its input is a step: the store says what waits for a worker
	}
	now := e.now()
	if !now.Before(held) || l.x.kill.IsZero() && !time.Now().Before(until) {
		return nil
	}
	if protocol.Next(&rec, x.claimEvent(), now).Do != protocol.DoInFlight {
		return nil
	}
	return &rec
}
