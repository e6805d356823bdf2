package idem

import (
	"context"
	"errors"
	"github.com/idem-go/idempotency/idem/protocol"
	"time"
)

// Atomic mode: an attempt without a claim, and what it meets when it commits.

// begins returns the attempt that may run without a claim, over what was seen.
func (p *plan) begins(c protocol.Claim, seen *Record) *attempt {
	a := &attempt{key: p.call.Key, rec: c.Record, begun: p.begun, kill: p.kill, born: &c}
	a.stood = Absent
	if seen != nil {
		a.stood = seen.State
	}
	return a
}

// meet follows the record that a commit met, as a call does that has not run yet.
// It returns an attempt if the commit may be tried again over it.
func (c *commit) meet(ctx context.Context, seen *Record) (*attempt, Outcome, error) {
	part, cancel := c.claiming(ctx)
	next, out, err := c.follow(ctx, part, cancel, seen)
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

// refusedAtomic ends an attempt in atomic mode whose unit of work was refused. Where a
// twin's commit is why, the record's own condition failed, which comes first.
func (c *commit) refusedAtomic(ctx context.Context, r *protocol.RefusedError, end protocol.Ending) (Outcome, error) {
	proceed := func() (Outcome, error) {
		if end.State != Failed && end.State != Completed {
			return c.nothing(ctx)
		}
		return c.write(ctx, end, nil)
	}
	if r.Ambiguous {
		return c.takeBack(ctx, r.Err, proceed)
	}
	return proceed()
}

// takeBack keeps a commit in doubt from landing later, as a claim is taken back
// whose reply never came, and settles what became of it.
func (c *commit) takeBack(ctx context.Context, why error, barred func() (Outcome, error)) (Outcome, error) {
	e := c.engine
	w := protocol.Withdrawal{Claim: *c.a.born, Owner: newID(), Uncertain: true}
	w.Write = w.Owner + ".0"
	w.ExpiresAt = ceil(e.now().Add(max(w.Claim.Record.Retention, barredFor)), time.Second)
	taken := func() (Outcome, error) {
		c.notify(ctx, NoticeWithdrawn, Notice{Attempt: c.a.rec.Attempt, State: Released})
		next := w.Claim
		next.Seen, next.Replace = w.Write, true
		c.over(next)
		c.a.stood = Released
		return barred()
	}
	rec, err := c.withdrawOnce(ctx, w)
	switch {
	case err == nil && rec == nil:
		return taken()
	case rec != nil && rec.Write == c.f.Write:
		return c.wasLanded(ctx)
	case rec != nil && rec.Write == w.Write:
		return taken()
	case rec != nil && rec.Write != w.Claim.Seen:
		// Where a rival's record stands the commit cannot land.
		next, out, err := c.meet(ctx, rec)
		if next != nil {
			return Outcome{}, c.failed(ctx, rec.State, false, why)
		}
		return out, err
	}
	c.later(ctx, c.a, &late{withdrawal: ownWithdrawal(w), State: Released, Attempt: c.a.rec.Attempt}, err)
	return Outcome{}, c.failed(ctx, Absent, true, why)
}

// withdrawOnce returns nothing if the withdrawal was written, else the record as it
// stands, as far as that can be found out, and why it was not.
func (c *commit) withdrawOnce(ctx context.Context, w protocol.Withdrawal) (*Record, error) {
	part, cancel := share(ctx, commitShare)
	defer cancel()
	err := c.engine.store.Withdraw(part, c.recorded, w)
	if err == nil {
		return nil, nil
	}
	var conflict *protocol.ConflictError
	if errors.As(err, &conflict) && conflict.Existing != nil {
		return conflict.Existing, err
	}
	rec, gErr := c.engine.store.Get(ctx, c.f.ID)
	if gErr != nil {
		return nil, errors.Join(err, gErr)
	}
	return rec, err
}
