package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// ambiguous marks the answer of a write that was sent before, without an answer that
// said much: that try may still be under way.
func ambiguous(err error) error {
	if refused, ok := errors.AsType[*protocol.RefusedError](err); ok {
		return &protocol.RefusedError{Err: refused.Err, Ambiguous: true}
	}
	if failed, ok := errors.AsType[*StoreError](err); ok {
		return &StoreError{Op: failed.Op, Ambiguous: true, Err: failed.Err}
	}
	return err
}

// resolveInDoubt ends an attempt whose commit got no answer that says what became of
// it. The attempt ends as after an error, by a write that also fences the commit.
func (c *commit) resolveInDoubt(ctx context.Context, err error) (Outcome, error) {
	failed, ok := errors.AsType[*StoreError](err)
	maybe := !ok || failed.Ambiguous
	if c.a.atomic() {
		if !maybe {
			return Outcome{}, c.failed(ctx, c.a.seenState, false, err)
		}
		if taken, out, otherErr := c.withdrawCommit(ctx, err); !taken {
			return out, otherErr
		}
		return Outcome{}, c.failed(ctx, c.a.seenState, false, err)
	}
	end := c.ending(c.a, ClassUncertain, Answer{}, failureOf(err))
	if maybe {
		written, out, otherErr := c.fence(ctx, end.Ending, err)
		if written == nil {
			return out, otherErr
		}
		return Outcome{}, c.failed(ctx, written.State, false, err)
	}
	done, fErr := c.finish(ctx, c.a, end)
	if fErr != nil {
		return c.lost(ctx, c.a, fErr)
	}
	return Outcome{}, c.failed(ctx, done.state, false, err)
}

// fence keeps a commit in doubt from landing later: it writes an end without the unit, under a new owner. It also finds
// out what became of the commit: it has landed, it is fenced, another attempt has the claim, or that stays unknown. If
// it is fenced, fence returns the end that was written, else the call's outcome.
func (c *commit) fence(ctx context.Context, end protocol.Ending, why error) (written *protocol.Ending,
	out Outcome, err error) {
	e := c.engine
	w := protocol.Finish{ID: c.f.ID, Owner: c.f.Owner, NewOwner: protocol.NewID(), Write: c.a.writeID(), Ending: end,
		Attempt: c.f.Attempt, LargeSteps: c.f.LargeSteps, Watched: c.f.Watched}
	part, cancel := share(ctx, commitShare)
	err = e.store.Finish(part, c.at, w)
	if parkedBy(existing(err), w.Owner) && end.State == Released {
		// By a stricter call: the question stays open, and the commit is fenced.
		w.Ending = protocol.Ending{State: Unknown, Failure: end.Failure, Uncertain: true, Ref: end.Ref}
		err = e.store.Finish(part, c.at, w)
	}
	cancel()
	var rec *Record
	switch {
	case err == nil:
		return c.fenced(ctx, &w.Ending), Outcome{}, nil
	case existing(err) != nil:
		rec = existing(err)
	default:
		rec, err = e.store.Get(protocol.WithoutRetryQuota(ctx), w.ID)
		if err != nil {
			return nil, Outcome{}, c.unfenced(ctx, why)
		}
	}
	switch {
	case rec.Bears(c.f.Write):
		out, err = c.wasLanded(ctx)
		return nil, out, err
	case rec.Bears(w.Write):
		return c.fenced(ctx, &w.Ending), Outcome{}, nil
	case rec != nil && rec.HeldBy(w.Owner):
		return nil, Outcome{}, c.unfenced(ctx, why)
	}
	out, err = c.lost(ctx, c.a, &protocol.ConflictError{Existing: rec})
	return nil, out, err
}

// unfenced makes the caller's error of a commit in doubt whose fence is not known to be
// written. The claim in the record already says that its attempt may have taken effect.
func (c *commit) unfenced(ctx context.Context, why error) error {
	return c.failed(ctx, InProgress, true, why)
}

func (c *commit) fenced(ctx context.Context, end *protocol.Ending) *protocol.Ending {
	c.notify(ctx, noticeOf(end.State), notice.Notice{Attempt: c.a.rec.Attempt, State: end.State, Err: c.ans.Err})
	return end
}

// withdrawCommit keeps a commit in doubt from landing later where there is no claim to fence: it withdraws the claim
// that the commit would have written. It also finds out what became of the commit. If it is taken back, the next commit
// goes over the withdrawal, else the call has its outcome.
func (c *commit) withdrawCommit(ctx context.Context, why error) (taken bool, out Outcome, err error) {
	e := c.engine
	// A commit that has seen no record lands as soon as there is none: what stands in its
	// way now may expire, so that a withdrawal must. One that has seen a record needs it.
	blind := c.a.unwritten.Seen == ""
	for range maxRounds {
		w := protocol.Withdrawal{Claim: *c.a.unwritten, Owner: protocol.NewID(), Uncertain: c.a.later == nil ||
			c.a.unwritten.Record.Uncertain}
		w.Write = w.Owner
		w.ExpiresAt = protocol.RoundUp(e.now().Add(max(w.Claim.Record.Retention, guard.LateRequests)), time.Second)
		rec, known, err := c.tryWithdraw(ctx, w)
		switch {
		case err == nil, rec.Bears(w.Write):
			c.notify(ctx, notice.Withdrawn, notice.Notice{Attempt: c.a.made().Attempt, State: Released})
			next := w.Claim
			next.Seen, next.Replace = w.Write, true
			c.retarget(next)
			c.a.seenState = Released
			return true, Outcome{}, nil
		case rec.Bears(c.f.Write):
			out, err = c.wasLanded(ctx)
			return false, out, err
		case rec != nil && rec.Write != w.Claim.Seen:
			// Over another attempt's record the commit cannot land.
			next, out, err := c.reconcile(ctx, rec)
			if next == nil {
				return false, out, err
			}
			if !blind {
				return false, Outcome{}, c.failed(ctx, rec.State, false, why)
			}
			c.retarget(*next.unwritten)
		case known && rec == nil && w.Claim.Seen != "":
			// Nor over one that no longer exists. The next commit makes the record.
			c.retarget(c.newClaim(nil, protocol.DoCreate))
			if !blind {
				c.a.seenState = Absent
				return true, Outcome{}, nil
			}
		default:
			c.engine.pending.KeepWithdrawal(ctx, w, c.kill.IsZero(), err)
			return false, Outcome{}, c.failed(ctx, Absent, true, why)
		}
	}
	return false, Outcome{}, c.failed(ctx, Absent, true, why)
}

// tryWithdraw returns no error if the withdrawal was written, else why it was not and the
// record as it is, if that is known.
func (c *commit) tryWithdraw(ctx context.Context, w protocol.Withdrawal) (rec *Record, known bool, err error) {
	part, cancel := share(ctx, commitShare)
	defer cancel()
	if err = c.engine.store.Withdraw(part, c.at, w); err == nil {
		return nil, false, nil
	}
	if rec = existing(err); rec != nil {
		return rec, true, err
	}
	rec, gErr := c.engine.store.Get(protocol.WithoutRetryQuota(ctx), c.f.ID)
	if gErr != nil {
		return nil, false, errors.Join(err, gErr)
	}
	return rec, true, err
}

// wasLanded ends an attempt whose commit has landed although its answer was lost or was
// a refusal: what it wrote is the outcome.
func (c *commit) wasLanded(ctx context.Context) (Outcome, error) {
	c.ans, c.judged = c.sent, c.sentJudged
	return c.landed(ctx)
}
