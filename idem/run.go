package idem

import (
	"context"
	"errors"
	"github.com/idem-go/idempotency/idem/protocol"
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
		_, _, _ = p.finish(ctx, a, p.ending(a, ClassNotExecuted, Answer{}, failureOf(err)))
		return Outcome{}, err
	}
	l := p.lease(ctx, a)
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
		if _, _, err := p.finish(ctx, a, p.ending(a, ClassUncertain, Answer{}, f)); err != nil {
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
	if len(ans.Kept) > maxKept {
		ans.Kept = nil
	}
	a.kept = ans.Kept
	end := p.ending(a, class, ans, failureOf(ans.Err))
	ended = true
	l.stop()

	if end.Omitted {
		a.omitted = true
		p.notify(ctx, NoticeResultOmitted, Notice{Attempt: a.rec.Attempt, State: end.State, Err: ans.Omitted})
	}
	if a.atomic() || unit != nil && end.State == Completed {
		return p.commit(ctx, l.ctx, a, ans, end, unit)
	}
	state, queued, err := p.finish(ctx, a, end)
	if err != nil {
		return p.lost(ctx, a, err)
	}
	if !queued && !p.kill.IsZero() {
		p.flushLarge(ctx)
	}
	return Outcome{
		Body: ans.Body, State: state, Ended: end.State, Failure: end.Failure, Attempt: a.rec.Attempt, CreatedAt: a.rec.CreatedAt,
		RecordedAt: p.recorded, ExpiresAt: p.expires, Queued: queued,
		Omitted: a.omitted, ResponseVersion: ans.ResponseVersion,
	}, unmark(ans.Err)
}

// rule is whose word counts: the operation's own rule first, then what the
// handler said, then the wrapper's rule, then the error.
func (p *plan) rule(ctx context.Context, a *attempt, ans Answer) Class {
	c := ClassDefault
	if f := p.call.Key.op.Classify; f != nil {
		c = f(ctx, ans.Value, ans.Err)
	}
	if c == ClassDefault || c > ClassRefused {
		c = a.said(ans)
	}
	signs := a.signs.Load()
	switch {
	case c == ClassRejected && signs:
		return ClassUncertain
	case c == ClassRefused && signs:
		return ClassFailed
	case c == ClassRejected, c == ClassRefused:
		return ClassNotExecuted
	}
	return c
}

// said is what the handler and its wrapper say.
func (a *attempt) said(ans Answer) Class {
	if c := Class(a.says.Load()); c == ClassNotExecuted || c == ClassCompleted && ans.Err == nil {
		return c
	}
	if ans.Class != ClassDefault {
		return ans.Class
	}
	return classOf(ans.Err)
}

// response is what becomes of an answer that fails without an error: it is the
// outcome, without its unit of work. That is dropped too once steps are undone.
func (a *attempt) response(c Class, ans Answer, unit Unit) (Class, Unit) {
	switch {
	case c == ClassFailed && ans.Err == nil:
		return ClassCompleted, nil
	case a.journal.undone() != nil && Class(a.says.Load()) != ClassCompleted:
		return c, nil
	}
	return c, unit
}

// ending turns the class into what the record becomes, by the declaration.
func (p *plan) ending(a *attempt, c Class, ans Answer, f *Failure) protocol.Ending {
	// A place for the expiry: it counts from when the end is written.
	expires := p.engine.expiry(p.engine.now(), p.call.Key.op.retention(), len(ans.Body))
	switch c {
	case ClassCompleted:
		en := protocol.Ending{State: Completed, Result: ans.Body, ExpiresAt: expires, ResponseVersion: max(ans.ResponseVersion, 0)}
		if ans.Omitted != nil {
			en.Result, en.Omitted = ans.Kept, true
		}
		return en
	case ClassFailed:
		return protocol.Ending{State: Failed, Failure: f, ExpiresAt: expires}
	}
	en := protocol.Ending{State: Unknown, Failure: f, Uncertain: true}
	if c == ClassNotExecuted {
		en.State, en.Uncertain = Released, a.rec.Uncertain
	} else if a.rec.Repeat == Repeatable && !a.journal.mustPark() {
		en.State = Released
	}
	if en.State == Released && !a.journal.any() {
		en.ExpiresAt = expires
	}
	return en
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
	if p.kill.IsZero() && a.claimed() && p.leaseLeft(p.leaseEnd()) <= 0 {
		return errors.Join(ErrOutOfTime, ErrLeaseLost)
	}
	return nil
}

// finish records the end and returns the state that the record is in. The error,
// if any, says that the claim is lost. Whatever else goes wrong is queued, and
// never releases the claim; queued is also set if only the result is.
func (p *plan) finish(ctx context.Context, a *attempt, en protocol.Ending) (s State, queued bool, err error) {
	e := p.engine
	t := terminal{
		f:    protocol.Finish{ID: a.rec.ID, Owner: a.rec.Owner, Write: a.writeID(), Ending: en, LargeSteps: a.journal.anyLarge()},
		kept: a.kept, retention: p.call.Key.op.retention(),
	}
	if a.open {
		absent := a.rec
		t.f.Absent = &absent
	}
	if len(en.Result) > lateLarge {
		t.f.Progress = new(protocol.Progress)
	}
	ctx, cancel := p.finishing(ctx, len(en.Result))
	defer cancel()
	err = e.put(ctx, &t)
	p.recorded, p.expires = t.recorded, t.f.Ending.ExpiresAt
	n := Notice{Attempt: a.rec.Attempt, State: en.State}
	if en.Failure != nil {
		n.Err = &RecordedError{*en.Failure}
	}
	var conflict *protocol.ConflictError
	switch {
	case err == nil:
		return en.State, p.stands(ctx, a, &t, n), nil
	case errors.As(err, &conflict):
		if old := conflict.Existing; old != nil && old.State == Unknown && old.HeldBy(a.rec.Owner) {
			// Parked by a stricter twin: the question stays open, and the claim is ours.
			n.State = old.State
			p.notify(ctx, noticeOf(old.State), n)
			return old.State, false, nil
		}
		return "", false, err
	case errors.Is(err, ErrRecordUnreadable):
		return "", false, err
	}
	a.omitted = a.omitted || t.omitted != nil
	queued = p.later(ctx, a, &late{terminal: t.own(), State: en.State, Attempt: a.rec.Attempt}, err)
	return InProgress, queued, nil
}

// stands tells that an end is recorded, and adds its result if that is owed: at once
// if there is time, else later.
func (p *plan) stands(ctx context.Context, a *attempt, t *terminal, n Notice) (queued bool) {
	e := p.engine
	var err error
	if t.owes() {
		err = e.add(ctx, t)
	}
	if t.omitted != nil {
		a.omitted = true
		p.notify(ctx, NoticeResultOmitted, Notice{Attempt: n.Attempt, State: n.State, Err: t.omitted})
	}
	p.notify(ctx, noticeOf(n.State), n)
	if err == nil {
		return false
	}
	return p.later(ctx, a, &late{terminal: t.own(), State: n.State, Attempt: n.Attempt}, err)
}

func noticeOf(s State) NoticeKind {
	switch s {
	case Completed:
		return NoticeCompleted
	case Failed:
		return NoticeFailed
	case Released:
		return NoticeReleased
	}
	return NoticeParked
}

// finishing bounds the calls after the handler: the caller's cancellation does not
// count any more, the kill time does.
func (p *plan) finishing(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	return p.bounded(context.WithoutCancel(ctx), size)
}

// bounded bounds calls that carry a result of the size.
func (p *plan) bounded(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	e := p.engine
	budget := e.opts.FinishBudget + sizeAllowance(size)
	// Past its kill time the process lives: it was none.
	if left := p.kill.Sub(e.now()); !p.kill.IsZero() && left > 0 {
		budget = min(budget, left-left/10)
	}
	return context.WithTimeout(ctx, max(budget, leastFinish))
}

// lost answers the caller of an attempt that lost its claim: with the recorded
// outcome if there is one, never with the attempt's own.
func (p *plan) lost(ctx context.Context, a *attempt, err error) (Outcome, error) {
	e := p.engine
	var conflict *protocol.ConflictError
	if !errors.As(err, &conflict) {
		p.notify(ctx, NoticeUnreadable, Notice{Attempt: a.rec.Attempt, Err: err})
		return Outcome{}, errors.Join(&InFlightError{Lost: true}, err)
	}
	rec := conflict.Existing
	n := Notice{Attempt: a.rec.Attempt, Err: ErrLeaseLost}
	if rec != nil {
		n.State = rec.State
	}
	p.notify(ctx, NoticeLeaseLost, n)
	if rec == nil {
		return Outcome{}, &InFlightError{Lost: true}
	}
	switch protocol.Next(rec, p.claimEvent(), e.now()).Do {
	case protocol.DoReplay:
		ctx, cancel := p.finishing(ctx, rec.Body.Stored)
		defer cancel()
		out, err := p.replay(ctx, rec)
		if errors.Is(err, ErrStoreUnavailable) {
			// Something was executed: the caller must not read that nothing was.
			break
		}
		return out, err
	case protocol.DoUnknown:
		return Outcome{}, ErrOutcomeUnknown
	}
	left := rec.LeaseUntil.Add(e.opts.Margin).Sub(e.now())
	return Outcome{}, &InFlightError{Lost: true, LeaseLeft: max(left, 0), Attempt: rec.Attempt}
}
