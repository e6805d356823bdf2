package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
)

// leastFinish is the least that a write after the handler gets, even at the
// very end: the kill comes from outside, so trying costs nothing.
const leastFinish = 50 * time.Millisecond

// schedule works out the call's times. It returns ErrOutOfTime if too little is left
// for the handler; a call without any time has no budget either.
func (x *execution) schedule(ctx context.Context) error {
	e := x.engine
	x.budget = 0
	if ctx.Err() != nil {
		return errors.Join(ErrOutOfTime, context.Cause(ctx))
	}
	x.budget = e.opts.ClaimBudget
	end, bounded := ctx.Deadline()
	kill, known := e.killTime(ctx)
	if known && (!bounded || kill.Before(end)) {
		end, bounded = kill, true
	}
	if !bounded {
		return nil
	}
	// Deadlines use the process's clock, records the engine's.
	if x.budget = min(x.budget, time.Until(end)/4); x.budget <= 0 {
		return ErrOutOfTime
	}
	if known {
		x.endByEngine, x.endByProcess = kill, kill
		if e.opts.Now != nil {
			x.endByEngine = kill.Add(time.Until(e.opts.Now()))
		}
		if !e.managed {
			x.kill = x.endByEngine
		}
		x.guard = min(e.opts.Guard, time.Until(kill)/4)
	}
	return x.short(ctx)
}

// short reports whether less than MinTime is left for the handler.
func (x *execution) short(ctx context.Context) error {
	least := x.call.Key.op.minTime()
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) < least {
		return ErrOutOfTime
	}
	if !x.endByProcess.IsZero() && time.Until(x.endByProcess)-x.guard < least {
		return ErrOutOfTime
	}
	return nil
}

// claimShare of the budget goes to claiming, the rest is kept to take back a claim whose reply never came.
const claimShare = 0.7

// claimTime is the time that one claim has.
type claimTime struct {
	ctx    context.Context // bounds the claim itself
	cancel context.CancelFunc
	// withdrawBy is until when a claim whose reply never came can be taken back.
	withdrawBy time.Time
}

// claiming begins the time of a claim.
func (x *execution) claiming(ctx context.Context) claimTime {
	start := time.Now()
	t := claimTime{withdrawBy: start.Add(x.budget)}
	t.ctx, t.cancel = context.WithDeadline(ctx, start.Add(time.Duration(claimShare*float64(x.budget))))
	return t
}

func (t *claimTime) end() { t.cancel() }

// finishing bounds the calls after the handler: the caller's cancellation does not count any more, the kill time does.
func (x *execution) finishing(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	return x.bounded(context.WithoutCancel(ctx), size)
}

// bounded bounds calls that carry a result of the size.
func (x *execution) bounded(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	budget := x.within(x.engine.opts.FinishBudget + guard.Allowance(size))
	return context.WithTimeout(ctx, max(budget, leastFinish))
}

// within is the part of the budget that ends before the kill time.
func (x *execution) within(budget time.Duration) time.Duration {
	// A process that lives past its kill time was not killed: the kill time was wrong.
	if left := x.kill.Sub(x.engine.now()); !x.kill.IsZero() && left > 0 {
		budget = min(budget, left-left/10)
	}
	return budget
}

// share is a part of the time that the context has left.
func share(ctx context.Context, part float64) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(part*float64(time.Until(end))))
}

type killTimeKey struct{}

// WithKillTime tells the engine when the process will be killed or frozen, as Lambda's deadline says: the lease ends
// then and needs no renewal before. The wrappers of package idemlambda call it. Without it the context's own deadline
// counts inside Lambda, and elsewhere the lease is renewed while the handler runs, as it is on Lambda Managed
// Instances, where a time-out kills nothing, and of a handler that still runs when its kill time has passed. A context
// that has a kill time is returned as it is.
func WithKillTime(ctx context.Context, t time.Time) context.Context {
	if _, ok := ctx.Value(killTimeKey{}).(time.Time); ok {
		return ctx
	}
	return context.WithValue(ctx, killTimeKey{}, t)
}

func (e *Engine) killTime(ctx context.Context) (time.Time, bool) {
	if t, ok := ctx.Value(killTimeKey{}).(time.Time); ok {
		return t, true
	}
	if e.inLambda {
		return ctx.Deadline()
	}
	return time.Time{}, false
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
