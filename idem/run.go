package idem

import (
	"context"
	"errors"
	"time"
)

// run executes the handler under its claim and records how it ended. It returns
// only when the handler has returned.
func (p *plan) run(ctx context.Context, a *attempt) (Outcome, error) {
	if err := p.late(ctx, a); err != nil {
		// The claim came with no time left to use it: surely nothing was executed.
		p.notify(ctx, p.engine.obs.OutOfTime, Notice{Attempt: a.rec.Attempt, Err: err})
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
		_ = a.steps.close()
		if a.atomic() {
			p.notify(ctx, p.engine.obs.Uncommitted, Notice{Attempt: a.rec.Attempt, State: a.stood, Err: errPanicked})
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

	if end.Unavailable {
		a.dropped = true
		p.notify(ctx, p.engine.obs.ResultDropped, Notice{Attempt: a.rec.Attempt, State: end.State, Err: ans.Unencodable})
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
		RecordedAt: p.recorded, ExpiresAt: end.ExpiresAt, Queued: queued,
		Unencoded: a.dropped, ResponseVersion: ans.ResponseVersion,
	}, unmark(ans.Err)
}

// rule is whose word counts: the operation's own rule first, then what the
// handler said, then the wrapper's rule, then the error.
func (p *plan) rule(ctx context.Context, a *attempt, ans Answer) Class {
	c := ClassDefault
	if f := p.call.Key.op.Classify; f != nil {
		c = f(ctx, ans.Value, ans.Err)
	}
	if c == ClassDefault || c > ClassRejected {
		c = a.said(ans)
	}
	if c == ClassRejected && a.signs.Load() {
		return ClassUncertain
	}
	if c == ClassRejected {
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
	case a.steps.undone() != nil && Class(a.says.Load()) != ClassCompleted:
		return c, nil
	}
	return c, unit
}

// ending turns the class into what the record becomes, by the declaration.
func (p *plan) ending(a *attempt, c Class, ans Answer, f *Failure) Ending {
	op := &p.call.Key.op
	expires := ceil(p.engine.now().Add(op.retention()), time.Second)
	switch c {
	case ClassCompleted:
		en := Ending{State: Completed, Result: ans.Body, ExpiresAt: expires, ResponseVersion: ans.ResponseVersion}
		if ans.Unencodable != nil {
			en.Result, en.Unavailable = ans.Kept, true
		}
		return en
	case ClassFailed:
		return Ending{State: Failed, Failure: f, ExpiresAt: expires}
	}
	en := Ending{State: Unknown, Failure: f, Uncertain: true}
	if c == ClassNotExecuted {
		en.State, en.Uncertain = Retryable, a.rec.Uncertain
	} else if a.rec.Repeat == Repeatable && !a.steps.mustPark() {
		en.State = Retryable
	}
	if en.State == Retryable && !a.steps.any() {
		en.ExpiresAt = expires
	}
	return en
}

// late reports whether the handler's time was over before it began.
func (p *plan) late(ctx context.Context, a *attempt) error {
	if ctx.Err() != nil {
		return errors.Join(ErrOutOfTime, context.Cause(ctx))
	}
	if !p.end.IsZero() && p.end.Sub(p.engine.now()) <= p.guard {
		return ErrOutOfTime
	}
	// A pause since the claim was sent, or a slow store, has used up the lease.
	if p.kill.IsZero() && a.claimed() && p.leaseLeft(p.leaseEnd()) <= 0 {
		return errors.Join(ErrOutOfTime, ErrLeaseLost)
	}
	return nil
}

// finish records the end and returns the state that the record is in. The error,
// if any, says that the claim is lost. Whatever else goes wrong is queued, and
// never releases the claim.
func (p *plan) finish(ctx context.Context, a *attempt, en Ending) (s State, queued bool, err error) {
	e := p.engine
	f := Finish{ID: a.rec.ID, Owner: a.rec.Owner, Write: a.writeID(), Ending: en, LargeSteps: a.steps.anyLarge()}
	if a.open {
		absent := a.rec
		f.Absent = &absent
	}
	ctx, cancel := p.finishing(ctx, len(en.Result))
	defer cancel()
	p.recorded = e.now()
	err = e.record(ctx, p.recorded, a, f)
	var large *TooLargeError
	if errors.As(err, &large) {
		// The fact is never lost for the sake of the body, or of an error's text.
		if en.State == Completed {
			a.dropped = true
			p.notify(ctx, e.obs.ResultDropped, Notice{Attempt: a.rec.Attempt, State: en.State, Err: err})
			f.Ending.Result, f.Ending.Unavailable = a.kept, true
		} else if f.Ending.Failure != nil {
			f.Ending.Failure = f.Ending.Failure.short()
		}
		f.Write = a.writeID()
		err = e.record(ctx, p.recorded, a, f)
	}
	if blind(err) {
		err = p.reread(ctx, f)
	}
	n := Notice{Attempt: a.rec.Attempt, State: en.State}
	if en.Failure != nil {
		n.Err = &RecordedError{*en.Failure}
	}
	var conflict *ConflictError
	switch {
	case err == nil:
		p.notify(ctx, e.ended(en.State), n)
		return en.State, false, nil
	case errors.As(err, &conflict):
		if old := conflict.Existing; old != nil && old.State == Unknown && old.holds(a.rec.Owner) {
			// Parked by a stricter twin: the question stays open, and the claim is ours.
			n.State = old.State
			p.notify(ctx, e.ended(old.State), n)
			return old.State, false, nil
		}
		return "", false, err
	case errors.Is(err, ErrRecordUnreadable):
		return "", false, err
	}
	recorded := p.recorded // repeated as it is
	l := late{State: en.State, Attempt: a.rec.Attempt, size: len(f.Ending.Result), write: func(ctx context.Context) error {
		return e.record(ctx, recorded, a, f)
	}}
	if en.State != Retryable {
		l.settles = f.ID
	}
	queued = p.later(ctx, l, err)
	return InProgress, queued, nil
}

// blind reports whether the answer leaves open which record stood in the way.
func blind(err error) bool {
	var conflict *ConflictError
	return errors.Is(err, ErrRecordUnreadable) || errors.As(err, &conflict) && conflict.Existing == nil
}

// reread looks once more at what stood in the way and was not shown. A record
// that the attempt still holds gets the write once more.
func (p *plan) reread(ctx context.Context, f Finish) error {
	rec, gErr := p.engine.store.Get(ctx, f.ID)
	switch {
	case gErr != nil && isAnswer(gErr):
		return gErr
	case gErr != nil:
		// Not to be told now: the write is repeated later, and is fenced then too.
		return &StoreError{Op: "finish", Maybe: true, Err: gErr}
	case rec != nil && rec.Write == f.Write:
		return nil
	case Next(rec, f.event(), p.recorded).Do == DoApply:
		err := p.engine.store.Finish(ctx, p.recorded, f)
		if blind(err) {
			return &StoreError{Op: "finish", Maybe: true, Err: errors.New(err.Error())}
		}
		return err
	}
	return &ConflictError{Existing: rec}
}

func (e *Engine) ended(s State) func(context.Context, Notice) {
	switch s {
	case Completed:
		return e.obs.Completed
	case Failed:
		return e.obs.Failed
	case Retryable:
		return e.obs.Released
	}
	return e.obs.Parked
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
	var conflict *ConflictError
	if !errors.As(err, &conflict) {
		p.notify(ctx, e.obs.Unreadable, Notice{Attempt: a.rec.Attempt, Err: err})
		return Outcome{}, errors.Join(&InFlightError{Lost: true}, err)
	}
	rec := conflict.Existing
	n := Notice{Attempt: a.rec.Attempt, Err: ErrLeaseLost}
	if rec != nil {
		n.State = rec.State
	}
	p.notify(ctx, e.obs.LeaseLost, n)
	if rec == nil {
		return Outcome{}, &InFlightError{Lost: true}
	}
	switch Next(rec, p.claimEvent(), e.now()).Do {
	case DoReplay:
		ctx, cancel := p.finishing(ctx, rec.Body.Stored)
		defer cancel()
		out, err := p.replay(ctx, rec)
		if errors.Is(err, ErrStoreUnavailable) {
			// Something was executed: the caller must not read that nothing was.
			break
		}
		return out, err
	case DoUnknown:
		return Outcome{}, ErrOutcomeUnknown
	}
	left := rec.LeaseUntil.Add(e.opts.Margin).Sub(e.now())
	return Outcome{}, &InFlightError{Lost: true, LeaseLeft: max(left, 0), Attempt: rec.Attempt}
}
