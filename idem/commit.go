package idem

import (
	"context"
	"errors"
	"github.com/idem-go/idempotency/idem/protocol"
	"time"
)

// commitShare of the time for an outcome goes to its commit. The rest is kept to
// bar a commit whose reply never came, and to read what became of it.
const commitShare = 0.6

// commit is an outcome that is more than a change of the record: it carries
// business writes, or it is the first that the store hears of its attempt. Such an
// outcome is written now or never: when its caller has been told that it is not
// certain, it must not land later behind the caller's back.
type commit struct {
	*plan
	a   *attempt
	ans Answer
	f   protocol.Finish
	// outer is the call's context, hctx the handler's.
	outer, hctx context.Context
	// replaced is set when ans is no longer what f commits.
	replaced bool
	// owed is f with its result, if f commits without it.
	owed *terminal
}

// commit records the attempt's outcome with its unit of work, which may be nil in
// atomic mode.
func (p *plan) commit(ctx, hctx context.Context, a *attempt, ans Answer, end protocol.Ending, unit Unit) (Outcome, error) {
	c := &commit{plan: p, a: a, ans: ans, outer: ctx, hctx: hctx}
	if a.atomic() && end.State != Completed && end.State != Failed {
		return c.nothing(ctx)
	}
	if end.State != Completed {
		unit = nil
	}
	size := len(end.Result)
	if unit != nil {
		size += unit.Size()
	}
	// The time by size is for the commit alone, which gets a share of the whole.
	ctx, cancel := p.finishing(ctx, int(float64(size)/commitShare))
	defer cancel()
	return c.write(ctx, end, unit)
}

func (c *commit) write(ctx context.Context, end protocol.Ending, unit Unit) (Outcome, error) {
	a := c.a
	c.replaced, c.owed = false, nil
	c.f = protocol.Finish{ID: a.rec.ID, Owner: a.rec.Owner, Write: a.writeID(), Created: a.rec.CreatedAt, Ending: end, Born: a.born, Unit: unit, LargeSteps: a.journal.anyLarge()}
	if a.open {
		absent := a.rec
		c.f.Absent = &absent
	}
	if len(end.Result) > lateLarge {
		c.f.Progress = new(protocol.Progress)
	}
	for range maxRounds {
		c.date()
		err := c.try(ctx)
		var refused *protocol.RefusedError
		switch {
		case err == nil:
			return c.landed(ctx)
		case errors.As(err, &refused):
			return c.refused(ctx, refused)
		case errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, ErrStoreUnavailable):
			return c.refused(ctx, &protocol.RefusedError{Err: err})
		case !isAnswer(err):
			return c.doubt(ctx, err)
		case !a.atomic():
			return c.lost(ctx, a, err)
		}
		// A record stands where there was none, or another one, when the handler began.
		seen, err := c.existing(ctx, err)
		if errors.Is(err, ErrRecordUnreadable) {
			return Outcome{}, c.unavailable(ctx, err)
		}
		if err != nil {
			return Outcome{}, c.failed(ctx, Absent, false, err)
		}
		next, out, err := c.meet(ctx, seen)
		if next == nil {
			return out, err
		}
		c.over(*next.born)
	}
	return Outcome{}, c.failed(ctx, a.stood, false, errors.New("the record changes all the time"))
}

// over aims the commit at the record that the claim has seen. Owner and write stay:
// whichever round lands, it is this outcome.
func (c *commit) over(next protocol.Claim) {
	a := c.a
	next.Record.Owner, next.Record.Write = a.rec.Owner, a.rec.Write
	a.rec, a.born, c.f.Born, c.f.Created = next.Record, &next, &next, next.Record.CreatedAt
}

// date gives the outcome the times of a commit that is sent now.
func (c *commit) date() {
	c.recorded = c.engine.now()
	c.f.Ending.ExpiresAt = c.engine.expiry(c.recorded, c.call.Key.op.retention(), len(c.f.Ending.Result))
	c.expires = c.f.Ending.ExpiresAt
}

// try sends the commit, within its share of the time.
func (c *commit) try(ctx context.Context) error {
	part, cancel := share(ctx, commitShare)
	defer cancel()
	e := c.engine
	err := e.record(part, c.recorded, c.f)
	if c.shorten(err) {
		err = e.record(part, c.recorded, c.f)
	}
	if blind(err) && !c.a.atomic() {
		err = inDoubt(e.reread(part, c.recorded, c.f))
	}
	return err
}

// shorten takes the result out of a commit if that is what the store could not keep,
// or not in time. The fact is never lost for the sake of the body.
func (c *commit) shorten(err error) bool {
	var large *protocol.TooLargeError
	var failed *StoreError
	switch {
	case errors.As(err, &large):
		c.owed = &terminal{omitted: err, stands: true}
		c.f.Write = c.a.writeID()
	case errors.As(err, &failed) && failed.Result && c.f.Ending.State == Completed && !c.f.Ending.Omitted:
		c.owed = &terminal{f: c.f, fact: c.a.writeID(), kept: c.a.kept, retention: c.call.Key.op.retention(), stands: true}
		c.owed.f.Unit, c.owed.f.Born = nil, nil
		c.f.Write = c.owed.fact
	default:
		return false
	}
	c.f.Ending.Result, c.f.Ending.Omitted, c.f.Progress = c.a.kept, true, nil
	return true
}

// inDoubt marks what a write was told that had been sent before and was told next to
// nothing: an earlier try may still be under way.
func inDoubt(err error) error {
	var refused *protocol.RefusedError
	var failed *StoreError
	switch {
	case errors.As(err, &refused):
		return &protocol.RefusedError{Err: refused.Err, Ambiguous: true}
	case errors.As(err, &failed):
		return &StoreError{Op: failed.Op, Ambiguous: true, Err: failed.Err}
	}
	return err
}

// share is a part of the time that the context has left.
func share(ctx context.Context, part float64) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(part*float64(time.Until(end))))
}

func (c *commit) landed(ctx context.Context) (Outcome, error) {
	end := &c.f.Ending
	n := Notice{Attempt: c.a.rec.Attempt, State: end.State}
	if end.Failure != nil {
		n.Err = &RecordedError{*end.Failure}
	}
	t := &terminal{}
	if c.owed != nil {
		t = c.owed
		t.recorded, t.f.Ending.ExpiresAt = c.recorded, end.ExpiresAt
	}
	queued := c.stands(ctx, c.a, t, n)
	if !queued && !c.kill.IsZero() {
		c.flushLarge(ctx)
	}
	out := c.outcome(end.State)
	out.Queued = queued
	return out, unmark(c.ans.Err)
}

// outcome of this attempt, in the state that the record is in.
func (c *commit) outcome(s State) Outcome {
	return Outcome{
		Body: c.ans.Body, State: s, Ended: c.f.Ending.State, Failure: c.f.Ending.Failure,
		Attempt: c.a.rec.Attempt, CreatedAt: c.a.rec.CreatedAt,
		RecordedAt: c.recorded, ExpiresAt: c.f.Ending.ExpiresAt,
		Omitted: c.a.omitted, ResponseVersion: c.ans.ResponseVersion,
	}
}

// nothing ends an attempt in atomic mode that has no outcome: the record, if there
// is one, stays as it is.
func (c *commit) nothing(ctx context.Context) (Outcome, error) {
	s := c.a.stood
	c.notify(ctx, NoticeUncommitted, Notice{Attempt: c.a.rec.Attempt, State: s, Err: c.ans.Err})
	return Outcome{
		Body: c.ans.Body, State: s, Ended: Released, Failure: failureOf(c.ans.Err),
		Attempt: c.a.rec.Attempt, CreatedAt: c.a.rec.CreatedAt, ResponseVersion: c.ans.ResponseVersion,
	}, unmark(c.ans.Err)
}

// failed makes the caller's error.
func (c *commit) failed(ctx context.Context, s State, maybe bool, err error) error {
	failed := &CommitError{State: s, Ambiguous: maybe, Err: err}
	c.notify(ctx, NoticeUncommitted, Notice{Attempt: c.a.rec.Attempt, State: s, Err: failed})
	return failed
}

// refused ends an attempt whose unit of work the store refused. The refusal is the
// handler's error, unless the call makes an answer of it, and its class says what
// becomes of the record, without the unit.
func (c *commit) refused(ctx context.Context, r *protocol.RefusedError) (Outcome, error) {
	end := c.judge(r)
	if c.a.atomic() {
		return c.refusedAtomic(ctx, r, end)
	}
	if r.Ambiguous {
		return c.bar(ctx, end, func(s State) (Outcome, error) {
			return c.outcome(s), unmark(c.ans.Err)
		}, r.Err)
	}
	// Undoing steps may have taken its time.
	s, queued, err := c.finish(c.outer, c.a, end)
	if err != nil {
		return c.lost(ctx, c.a, err)
	}
	c.f.Ending = end
	c.f.Ending.ExpiresAt = c.expires
	out := c.outcome(s)
	out.Queued = queued
	return out, unmark(c.ans.Err)
}

// judge replaces the handler's answer by the refusal's and classifies it. If the
// user's code panics over it, the attempt ends as if the handler did.
func (c *commit) judge(r *protocol.RefusedError) protocol.Ending {
	a, done := c.a, false
	defer func() {
		if done {
			return
		}
		if a.atomic() {
			c.notify(c.outer, NoticeUncommitted, Notice{Attempt: a.rec.Attempt, State: a.stood, Err: errPanicked})
			return
		}
		f := &Failure{Message: "the handler panicked", Type: "panic"}
		if _, _, err := c.finish(c.outer, a, c.ending(a, ClassUncertain, Answer{}, f)); err != nil {
			_, _ = c.lost(c.outer, a, err)
		}
	}()
	a.says.Store(int32(ClassDefault)) // it was said of another answer
	made := c.ans.Refused
	c.ans = Answer{Err: r.Err, Value: c.ans.Value}
	if made != nil {
		c.ans = made(r.Err)
	}
	if len(c.ans.Kept) > maxKept {
		c.ans.Kept = nil
	}
	c.replaced, a.kept, a.omitted = true, c.ans.Kept, false
	class := c.rule(context.WithoutCancel(c.hctx), a, c.ans)
	if class == ClassCompleted {
		class = ClassFailed // the result was one of writes that are not there
	}
	if c.ans.Cause == nil {
		c.ans.Cause = r.Err
	}
	if class == ClassFailed && (a.journal.any() || a.open) {
		class = c.undo(r, class)
	}
	class, _ = a.response(class, c.ans, nil)
	end := c.ending(a, class, c.ans, failureOf(c.ans.Err))
	a.omitted = end.Omitted
	done = true
	return end
}

// undo compensates the steps of an operation that fails for good because its unit
// of work was refused. The lease goes on meanwhile. While the commit may still land
// nothing is undone: that is left to the next attempt, whose commit settles it.
func (c *commit) undo(r *protocol.RefusedError, class Class) Class {
	if r.Ambiguous {
		return ClassUncertain
	}
	a := c.a
	a.running.mu.Lock()
	c.sent = a.running.until.Add(-c.engine.opts.Lease)
	a.running.mu.Unlock()
	l := c.lease(c.outer, a)
	defer l.stop()
	return c.settleSteps(l.ctx, a, &c.ans, class)
}

// doubt ends an attempt whose commit got no answer, or none that helps: the claim
// is given up as after an error, by a write that also bars the commit.
func (c *commit) doubt(ctx context.Context, err error) (Outcome, error) {
	var sErr *StoreError
	maybe := !errors.As(err, &sErr) || sErr.Ambiguous
	if c.a.atomic() {
		if !maybe {
			return Outcome{}, c.failed(ctx, c.a.stood, false, err)
		}
		return c.takeBack(ctx, err, func() (Outcome, error) {
			return Outcome{}, c.failed(ctx, Released, false, err)
		})
	}
	end := c.ending(c.a, ClassUncertain, Answer{}, failureOf(err))
	if maybe {
		return c.bar(ctx, end, func(s State) (Outcome, error) {
			return Outcome{}, c.failed(ctx, s, false, err)
		}, err)
	}
	s, _, fErr := c.finish(ctx, c.a, end)
	if fErr != nil {
		return c.lost(ctx, c.a, fErr)
	}
	return Outcome{}, c.failed(ctx, s, false, err)
}

// bar writes an end without the unit, under a new owner, so that a commit in doubt
// cannot land later whatever becomes of the record, and settles what became of it:
// it has landed, it is barred, another attempt has the claim, or nobody knows.
func (c *commit) bar(ctx context.Context, end protocol.Ending, barred func(State) (Outcome, error), why error) (Outcome, error) {
	e := c.engine
	if least := ceil(e.now().Add(barredFor), time.Second); c.a.open && !end.ExpiresAt.IsZero() && end.ExpiresAt.Before(least) {
		// Where the bar is gone, a commit that took no claim could land.
		end.ExpiresAt = least
	}
	w := protocol.Finish{ID: c.f.ID, Owner: c.f.Owner, NewOwner: newID(), Write: c.a.writeID(), Ending: end, Absent: c.f.Absent, LargeSteps: c.f.LargeSteps}
	part, cancel := share(ctx, commitShare)
	err := e.store.Finish(part, c.recorded, w)
	var conflict *protocol.ConflictError
	if errors.As(err, &conflict) && parkedBy(conflict.Existing, w.Owner) && end.State == Released {
		// By a stricter twin: the question stays open, and the commit is barred.
		w.Ending = protocol.Ending{State: Unknown, Failure: end.Failure, Uncertain: true}
		err = e.store.Finish(part, c.recorded, w)
	}
	cancel()
	var rec *Record
	switch {
	case err == nil:
		return c.barredIn(ctx, w.Ending, barred)
	case errors.As(err, &conflict) && conflict.Existing != nil:
		rec = conflict.Existing
	default:
		if rec, err = e.store.Get(ctx, w.ID); err != nil || rec == nil && c.a.open {
			return Outcome{}, c.failed(ctx, InProgress, true, why)
		}
	}
	switch {
	case rec != nil && rec.Write == c.f.Write:
		return c.wasLanded(ctx)
	case rec != nil && rec.Write == w.Write:
		return c.barredIn(ctx, w.Ending, barred)
	case rec != nil && rec.HeldBy(w.Owner):
		return Outcome{}, c.failed(ctx, InProgress, true, why)
	}
	return c.lost(ctx, c.a, &protocol.ConflictError{Existing: rec})
}

func (c *commit) barredIn(ctx context.Context, end protocol.Ending, barred func(State) (Outcome, error)) (Outcome, error) {
	c.notify(ctx, noticeOf(end.State), Notice{Attempt: c.a.rec.Attempt, State: end.State, Err: c.ans.Err})
	c.f.Ending = end
	return barred(end.State)
}

// wasLanded is for a commit that proves to have landed although it looked refused
// or lost: what it wrote is the outcome.
func (c *commit) wasLanded(ctx context.Context) (Outcome, error) {
	if !c.replaced {
		return c.landed(ctx)
	}
	// The answer has been replaced by the refusal of a later try: read the outcome.
	rec, err := c.engine.store.Get(ctx, c.f.ID)
	if err != nil {
		return Outcome{}, c.failed(ctx, Completed, true, err)
	}
	return c.lost(ctx, c.a, &protocol.ConflictError{Existing: rec})
}

// parkedBy reports whether the record is the owner's open question.
func parkedBy(rec *Record, owner string) bool {
	return rec != nil && rec.State == Unknown && rec.HeldBy(owner)
}
