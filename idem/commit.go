package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// commitShare of the time for an outcome goes to its commit. The rest is kept for
// fencing a commit whose reply never came, and for reading what became of it.
const commitShare = 0.6

// commit is an outcome that carries business writes, or that of an attempt in atomic
// mode, which the store does not know yet. Such an outcome is written now or never:
// once its caller has learned that it is not certain, it must not land any more.
type commit struct {
	*execution
	a   *attempt
	ans Answer
	end ending // of ans
	// judged is set if ans is the answer to a refusal of the unit of work.
	judged bool
	f      protocol.Finish
	at     time.Time // under which f was sent last
	// outer is the call's context, hctx the handler's.
	outer, hctx context.Context
	// sent is the answer that f commits. A refusal makes another one of ans.
	sent       Answer
	sentJudged bool
	// owed is f with its result, if f commits without it.
	owed *guard.End
}

// commit records the attempt's outcome with its unit of work, which may be nil in atomic mode.
func (x *execution) commit(ctx, hctx context.Context, a *attempt, ans Answer, end ending, unit Unit) (Outcome, error) {
	c := &commit{execution: x, a: a, ans: ans, end: end, outer: ctx, hctx: hctx}
	if a.atomic() && end.State != Completed && end.State != Failed && end.State != Pending {
		return c.endUncommitted(ctx)
	}
	if end.State != Completed && end.State != Pending {
		unit = nil
	}
	size := len(end.Result)
	if a.later != nil {
		size += len(a.later.Input)
	}
	if unit != nil {
		size += unit.Size()
	}
	// The time by size is for the commit alone, which gets a share of the whole.
	ctx, cancel := x.finishing(ctx, int(float64(size)/commitShare))
	defer cancel()
	return c.write(ctx, end, unit)
}

func (c *commit) write(ctx context.Context, end ending, unit Unit) (Outcome, error) {
	a := c.a
	c.end, c.sent, c.sentJudged, c.owed = end, c.ans, c.judged, nil
	c.f = protocol.Finish{ID: a.rec.ID, Owner: a.rec.Owner, Write: a.writeID(), Created: a.made().CreatedAt,
		Ending: end.Ending, Attempt: a.kind(), Unit: unit, LargeSteps: a.journal.anyLarge(), Watched: a.watched()}
	if len(end.Result) > guard.LargeResult {
		c.f.Progress = new(protocol.Progress)
	}
	l := protocol.Follow(c.engine.store, a.rec.ID, nil)
	for l.Next() {
		c.date()
		err := c.try(ctx)
		refused, isRefused := errors.AsType[*protocol.RefusedError](err)
		_, isLarge := errors.AsType[*protocol.TooLargeError](err)
		switch {
		case err == nil:
			return c.landed(ctx)
		case isRefused:
			return c.refused(ctx, refused)
		case errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, ErrStoreUnavailable):
			return c.refused(ctx, &protocol.RefusedError{Err: err})
		case a.later != nil && isLarge:
			c.ans.Err = err
			return c.endUncommitted(ctx)
		case errors.Is(err, ErrLimitExceeded):
			return Outcome{}, c.turnedAway(ctx, err)
		case !protocol.Answers(err):
			return c.resolveInDoubt(ctx, err)
		case !a.atomic():
			return c.lost(ctx, a, err)
		}
		// The record is not the one that the handler began with.
		err = l.Again(ctx, err)
		if errors.Is(err, ErrRecordUnreadable) {
			return Outcome{}, c.unavailable(ctx, err)
		}
		if err != nil {
			return Outcome{}, c.failed(ctx, Absent, false, err)
		}
		next, out, err := c.reconcile(ctx, l.Seen)
		if next == nil {
			return out, err
		}
		c.retarget(*next.unwritten)
	}
	return Outcome{}, c.failed(ctx, a.seenState, false, errors.New("the record changes all the time"))
}

// outcome of the answer and its end.
func (c *commit) outcome(end ending, done finished) Outcome {
	out := c.a.outcome(c.ans, end, done)
	out.UnitRefused = c.judged
	return out
}

// date gives the outcome the times of a commit that is sent now.
func (c *commit) date() {
	c.at = c.engine.now()
	if c.a.later != nil {
		// What an earlier attempt may have done is not undone by the acceptance.
		c.f.Ending.Due, c.f.Ending.Uncertain = c.a.later.due(c.at), c.a.unwritten.Record.Uncertain
		return
	}
	c.f.Ending.ExpiresAt = c.engine.expiry(c.at, c.call.Key.op.retention(), len(c.f.Ending.Result))
}

// try sends the commit, within its share of the time.
func (c *commit) try(ctx context.Context) error {
	part, cancel := share(ctx, commitShare)
	defer cancel()
	e := c.engine
	err := e.store.Finish(part, c.at, c.f)
	if c.shorten(err) {
		err = e.store.Finish(part, c.at, c.f)
	}
	if guard.ConflictUnseen(err) && !c.a.atomic() {
		err = ambiguous(e.pending.Reread(part, c.at, c.f))
	}
	return err
}

// shorten takes the result out of the commit if the store could not keep it, or not in
// time. An outcome is never lost for the sake of its result.
func (c *commit) shorten(err error) bool {
	if c.a.later != nil {
		return false
	}
	_, large := errors.AsType[*protocol.TooLargeError](err)
	failed, _ := errors.AsType[*StoreError](err)
	switch {
	case large:
		c.owed = &guard.End{Omitted: err, Written: true}
		c.f.Write = c.a.writeID()
	case failed != nil && failed.ResultNotStored && c.f.Ending.State == Completed && !c.f.Ending.Omitted:
		c.owed = &guard.End{Finish: c.f, Fact: c.a.writeID(), Summary: c.end.kept,
			Retention: c.call.Key.op.retention(), Written: true}
		c.owed.Finish.Unit, c.owed.Finish.Attempt = nil, nil
		c.f.Write = c.owed.Fact
	default:
		return false
	}
	c.f.Ending.Result, c.f.Ending.Omitted, c.f.Progress = c.end.kept, true, nil
	return true
}

func (c *commit) landed(ctx context.Context) (Outcome, error) {
	end := &c.f.Ending
	if c.a.later != nil {
		how, _ := c.f.Attempt.(protocol.Atomic)
		rec := how.Claim.Record
		rec.State = Pending
		return c.waits(ctx, &rec, false), nil
	}
	n := notice.Notice{Attempt: c.a.made().Attempt, State: end.State}
	if end.Failure != nil {
		n.Err = &RecordedError{*end.Failure}
	}
	t := &guard.End{}
	if c.owed != nil {
		t = c.owed
		t.Recorded, t.Finish.Ending.ExpiresAt = c.at, end.ExpiresAt
	}
	done := finished{state: end.State, recordedAt: c.at, expiresAt: end.ExpiresAt}
	t.Attempt = n.Attempt
	done.queued, done.omitted = c.endWritten(ctx, t, n)
	if !done.queued && !c.kill.IsZero() {
		c.flushLarge(ctx)
	}
	return c.outcome(c.end, done), Unmark(c.ans.Err)
}

// failed makes the caller's error of a commit that has not landed, or may not have.
func (c *commit) failed(ctx context.Context, s State, maybe bool, err error) error {
	failed := &CommitError{State: s, Ambiguous: maybe, Err: err}
	c.notify(ctx, notice.Uncommitted, notice.Notice{Attempt: c.a.made().Attempt, State: s, Err: failed})
	return failed
}

// accept commits that the operation is accepted for later, with what hands it over.
func (x *execution) accept(ctx, hctx context.Context, a *attempt, ans Answer) (Outcome, error) {
	unit := a.unit.seal()
	_ = a.journal.close()
	c := commit{execution: x, a: a, ans: ans, outer: ctx, hctx: hctx}
	if ans.Err != nil {
		return c.endUncommitted(ctx)
	}
	return x.commit(ctx, hctx, a, ans, ending{Ending: protocol.Ending{State: Pending}}, unit)
}

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
	end := ending{Ending: protocol.Ending{State: Released, Failure: failureOf(c.ans.Err)}, class: c.end.class}
	return c.outcome(end, finished{state: s}), Unmark(c.ans.Err)
}
