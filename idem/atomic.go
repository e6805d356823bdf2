package idem

import (
	"context"
	"errors"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// reconcile treats the record that conflicts with a commit as a call that has not run
// yet would. It returns an attempt if the commit may be tried again over that record.
func (c *commit) reconcile(ctx context.Context, seen *Record) (*attempt, Outcome, error) {
	r := reservation{execution: c.execution, ctx: ctx, time: c.claiming(ctx)}
	defer func() { r.time.end() }()
	next, out, err := r.follow(seen)
	if errors.Is(err, ErrStoreUnavailable) || errors.Is(err, ErrOutOfTime) {
		// Something was executed: the caller must not read that nothing was.
		s := Absent
		if seen != nil {
			s = seen.State
		}
		err = c.failed(ctx, s, false, err)
	}
	return next, out, err
}

// retarget makes the commit go over the record that the claim has seen. Owner and write
// stay: whichever round lands, it is the same outcome.
func (c *commit) retarget(next protocol.Claim) {
	a := c.a
	next.Record.Owner, next.Record.Write = a.rec.Owner, a.rec.Write
	*a.unwritten = next
	c.f.Attempt, c.f.Created = a.kind(), a.made().CreatedAt
}

// endUncommitted ends an attempt in atomic mode that has no outcome: the record, if there
// is one, stays as it is.
func (c *commit) endUncommitted(ctx context.Context) (Outcome, error) {
	s := c.a.seenState
	c.notify(ctx, notice.Uncommitted, notice.Notice{Attempt: c.a.made().Attempt, State: s, Err: c.ans.Err})
	if c.a.later != nil {
		return Outcome{}, Unmark(c.ans.Err)
	}
	end := ending{Ending: protocol.Ending{State: Released, Failure: failureOf(c.ans.Err)}}
	return c.a.outcome(c.ans, end, finished{state: s}), Unmark(c.ans.Err)
}
