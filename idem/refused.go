package idem

import (
	"context"

	"github.com/idem-go/idempotency/idem/protocol"
)

// refused ends an attempt whose unit of work the store refused. The refusal is the handler's error, unless the call
// makes an answer of it, and its class says what becomes of the record, without the unit.
func (c *commit) refused(ctx context.Context, r *protocol.RefusedError) (Outcome, error) {
	end := c.judge(r)
	if c.a.atomic() {
		return c.refusedAtomic(ctx, r, end)
	}
	if r.Ambiguous {
		written, out, err := c.fence(ctx, end.Ending, r.Err)
		if written == nil {
			return out, err
		}
		end.Ending = *written
		return c.outcome(end, finished{state: end.State, recordedAt: c.at, expiresAt: end.ExpiresAt}),
			Unmark(c.ans.Err)
	}
	// Undoing steps may have taken its time.
	done, err := c.finish(c.outer, c.a, end)
	if err != nil {
		return c.lost(ctx, c.a, err)
	}
	return c.outcome(end, done), Unmark(c.ans.Err)
}

// judge replaces the handler's answer by the refusal's and classifies it. If the
// user's code panics over it, the attempt ends as if the handler did.
func (c *commit) judge(r *protocol.RefusedError) ending {
	a, done := c.a, false
	defer func() {
		if !done {
			c.panicked(c.outer, a)
		}
	}()
	a.says.Store(int32(ClassDefault)) // it was said of another answer
	made := c.ans.OnRefused
	c.ans, c.judged = Answer{Err: r.Err, Value: c.ans.Value}, true
	if made != nil {
		c.ans = made(r.Err)
	}
	class := c.rule(context.WithoutCancel(c.hctx), a, c.ans)
	if class == ClassCompleted {
		class = ClassFailed // the result was one of writes that are not there
	}
	if c.ans.Cause == nil {
		c.ans.Cause = r.Err
	}
	if class == ClassFailed && a.journal.any() {
		class = c.undo(r, class)
	}
	class, _ = a.response(class, c.ans, nil)
	end := c.ending(a, class, c.ans, failureOf(c.ans.Err))
	done = true
	return end
}

// undo compensates the steps of an operation that fails permanently because its unit of work was refused, while the
// lease is still renewed. Nothing is undone if the commit may still land: that is left to the next attempt.
func (c *commit) undo(r *protocol.RefusedError, class Class) Class {
	if r.Ambiguous {
		return ClassUncertain
	}
	a := c.a
	held := a.running.Load()
	held.mu.Lock()
	until := held.until
	held.mu.Unlock()
	l := c.startLease(c.outer, a, until)
	defer l.stop()
	return c.applySteps(l.ctx, a, &c.ans, class)
}

// refusedAtomic ends an attempt in atomic mode whose unit of work was refused. If a concurrent duplicate's commit is
// the reason, the record's own condition fails too and is reported first: that is no refusal.
func (c *commit) refusedAtomic(ctx context.Context, r *protocol.RefusedError, end ending) (Outcome, error) {
	if r.Ambiguous {
		if taken, out, err := c.withdrawCommit(ctx, r.Err); !taken {
			return out, err
		}
	}
	c.end = end
	if c.a.later != nil || end.State != Failed && end.State != Completed {
		return c.endUncommitted(ctx)
	}
	return c.write(ctx, end, nil)
}
