package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
)

// run executes the handler under its claim and records how it ended. It returns only when the handler has returned.
func (x *execution) run(ctx context.Context, a *attempt) (Outcome, error) {
	if err := x.checkTime(ctx, a); err != nil {
		// No time is left to use the claim: nothing was executed.
		x.notify(ctx, notice.OutOfTime, notice.Notice{Attempt: a.rec.Attempt, Err: err})
		if a.atomic() {
			return Outcome{}, err
		}
		_, _ = x.finish(ctx, a, x.ending(a, ClassNotExecuted, Answer{}, failureOf(err)))
		return Outcome{}, err
	}
	l := x.startLease(ctx, a, a.until)
	began := time.Now()
	ended := false
	defer a.unit.drop()
	defer func() {
		if ended {
			return
		}
		if x.ran.Load() == 0 && a.later == nil {
			x.executed(ctx, a, began, errPanicked)
		}
		// The handler panics or leaves its goroutine. Nothing is recovered: the panic goes on after the write.
		l.stop()
		a.unit.seal()
		a.unit.drop()
		_ = a.journal.close()
		x.panicked(ctx, a)
	}()
	ans := x.call.Run(l.ctx)
	if a.later != nil {
		x.ran.Store(max(int64(time.Since(x.called)), 1)) // what it handed over names the record where that was
		ended = true
		l.stop()
		return x.accept(ctx, l.ctx, a, ans)
	}
	x.executed(ctx, a, began, ans.Err)
	unit := a.unit.seal()
	class := x.applySteps(l.ctx, a, &ans, x.rule(l.ctx, a, ans))
	class, unit = a.response(class, ans, unit)
	if class == ClassCompleted {
		// The result is the outcome, live as on replay, whatever error was returned with it.
		ans.Err = nil
	}
	end := x.ending(a, class, ans, failureOf(ans.Err))
	ended = true
	l.stop()
	if unit == nil || end.State != Completed { // what it holds may be what the write waits for
		a.unit.drop()
	}
	if end.Omitted {
		x.notify(ctx, notice.ResultOmitted, notice.Notice{Attempt: a.rec.Attempt, State: end.State, Err: ans.Omitted})
	}
	if a.atomic() || unit != nil && end.State == Completed {
		return x.commit(ctx, l.ctx, a, ans, end, unit)
	}
	done, err := x.finish(ctx, a, end)
	if err != nil {
		return x.lost(ctx, a, err)
	}
	if !done.queued && !x.kill.IsZero() {
		x.flushLarge(ctx)
	}
	return a.outcome(ans, end, done), Unmark(ans.Err)
}

// executed tells that the handler has returned, or left its goroutine.
func (x *execution) executed(ctx context.Context, a *attempt, began time.Time, err error) {
	x.ran.Store(max(int64(time.Since(x.called)), 1))
	x.notify(ctx, notice.Executed, notice.Notice{Attempt: a.made().Attempt, Took: time.Since(began), Err: err})
}

// checkTime reports whether the handler's time was over before it began.
func (x *execution) checkTime(ctx context.Context, a *attempt) error {
	if ctx.Err() != nil {
		return errors.Join(ErrOutOfTime, context.Cause(ctx))
	}
	if err := x.short(ctx); err != nil {
		return err
	}
	// A pause since the claim was sent, or a slow store, has used up the lease.
	if x.kill.IsZero() && a.claimed() && x.leaseLeft(a.until) <= 0 {
		return errors.Join(ErrOutOfTime, ErrLeaseLost)
	}
	return nil
}
