package idem

import (
	"context"
	"errors"
)

// run executes the handler under its claim and records how it ended. It returns
// only when the handler has returned.
func (p *plan) run(ctx context.Context, a *attempt) (Outcome, error) {
	if err := p.late(ctx, a); err != nil {
		// The claim came with no time left to use it: surely nothing was executed.
		p.notify(ctx, NoticeOutOfTime, Notice{Attempt: a.rec.Attempt, Err: err})
		if a.atomic() {
			return Outcome{}, err
		}
		_, _ = p.finish(ctx, a, p.ending(a, ClassNotExecuted, Answer{}, failureOf(err)))
		return Outcome{}, err
	}
	l := p.lease(ctx, a, a.until)
	ended := false
	defer func() {
		if ended {
			return
		}
		// The handler panics or leaves its goroutine. Nothing is recovered: the panic
		// goes on as it is once the record says what is known.
		l.stop()
		a.unit.seal()
		_ = a.journal.close()
		if a.atomic() {
			p.notify(ctx, NoticeUncommitted, Notice{Attempt: a.rec.Attempt, State: a.stood, Err: errPanicked})
			return
		}
		f := &Failure{Message: "the handler panicked", Type: "panic"}
		if _, err := p.finish(ctx, a, p.ending(a, ClassUncertain, Answer{}, f)); err != nil {
			_, _ = p.lost(ctx, a, err)
		}
	}()
	ans := p.call.Run(l.ctx)
	unit := a.unit.seal()
	class := p.settleSteps(l.ctx, a, &ans, p.rule(l.ctx, a, ans))
	class, unit = a.response(class, ans, unit)
	if class == ClassCompleted {
		// The result is the outcome, live as on replay, whatever stood beside it.
		ans.Err = nil
	}
	end := p.ending(a, class, ans, failureOf(ans.Err))
	ended = true
	l.stop()

	if end.Omitted {
		p.notify(ctx, NoticeResultOmitted, Notice{Attempt: a.rec.Attempt, State: end.State, Err: ans.Omitted})
	}
	if a.atomic() || unit != nil && end.State == Completed {
		return p.commit(ctx, l.ctx, a, ans, end, unit)
	}
	done, err := p.finish(ctx, a, end)
	if err != nil {
		return p.lost(ctx, a, err)
	}
	if !done.queued && !p.kill.IsZero() {
		p.flushLarge(ctx)
	}
	return a.outcome(ans, end, done), Unmark(ans.Err)
}

// outcome of the attempt's own answer and end.
func (a *attempt) outcome(ans Answer, end ending, done finished) Outcome {
	return Outcome{
		Body: ans.Body, Executed: true, State: done.state, Ended: end.State, Failure: end.Failure,
		Attempt: a.rec.Attempt, CreatedAt: a.rec.CreatedAt, RecordedAt: done.recordedAt, ExpiresAt: done.expiresAt,
		Queued: done.queued, Omitted: end.Omitted || done.omitted, ResponseVersion: ans.ResponseVersion,
	}
}

// late reports whether the handler's time was over before it began.
func (p *plan) late(ctx context.Context, a *attempt) error {
	if ctx.Err() != nil {
		return errors.Join(ErrOutOfTime, context.Cause(ctx))
	}
	if err := p.short(ctx); err != nil {
		return err
	}
	// A pause since the claim was sent, or a slow store, has used up the lease.
	if p.kill.IsZero() && a.claimed() && p.leaseLeft(a.until) <= 0 {
		return errors.Join(ErrOutOfTime, ErrLeaseLost)
	}
	return nil
}
