package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/internal/codec"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// shadowShare of [Options.ClaimBudget] bounds the store calls of a call in shadow, before its
// handler and once more after it: a quarter of a second, several times what DynamoDB takes over
// a new connection.
const shadowShare = 4

// observation is a call in shadow: the handler runs whatever the store says.
type observation struct {
	*execution
	a *attempt
	// claims is set if the call has its claim, or may have it: sent is the error then.
	claims bool
	sent   error
}

// observe runs the handler of a call in shadow and tells what the live mode would have
// answered. Nothing but the handler decides what the caller gets.
func (e *Engine) observe(ctx context.Context, c Call) (Outcome, error) {
	if err := c.Key.op.Check(); err != nil {
		return Outcome{}, err
	}
	if c.Run == nil {
		return Outcome{}, c.check()
	}
	x := &execution{engine: e, call: c, begun: e.now()}
	a := &attempt{key: c.Key, rec: Record{Attempt: 1}, shadow: true}
	if err := c.check(); err != nil {
		if c.NoClaim == nil {
			x.call.NoClaim = err
		}
		// There is no record. The token is that of the key all the same: a retry sends it again.
		x.call.Key.id = ""
		if c.Key.Err() != nil {
			a.key.id = recordID(SingleTenant, c.Key.op.Name, newID()) // nothing shares it
		}
	} else {
		if c.Key.name != nil {
			x.call.Fingerprint = c.Key.name.Current().Fingerprint(c.Fingerprint)
		}
		x.call.Key.id = protocol.ShadowID(x.call.Key.id)
	}
	o := &observation{execution: x, a: a}
	o.claim(ctx)
	ctx = context.WithValue(ctx, attemptKey{}, a)
	a.running.Store(&lease{ctx: ctx, cancel: func(error) {}, x: x, a: a})
	stop := o.renew()
	ended := false
	defer func() {
		if ended {
			return
		}
		// The handler panics or leaves its goroutine, which continues unchanged.
		stop()
		_ = a.journal.close()
		o.finish(ctx, ClassUncertain, &Failure{Message: "the handler panicked", Type: "panic"})
	}()
	ans := c.Run(ctx)
	ended = true
	stop()
	class, failure := o.judge(ctx, ans)
	o.finish(ctx, class, failure)
	return Outcome{Body: ans.Body, Executed: true, Omitted: ans.Omitted != nil, ResponseVersion: ans.ResponseVersion}, Unmark(ans.Err)
}

// claim makes the first call's claim, or tells what another call would have been answered.
func (o *observation) claim(ctx context.Context) {
	err := o.schedule(ctx)
	if o.call.NoClaim == nil {
		o.call.NoClaim = err
	}
	no := o.call.NoClaim
	if _, unread := errors.AsType[*protocol.UnobservedError](no); unread {
		o.unobserved(ctx, no)
		return
	}
	if o.call.Key.id == "" || o.budget <= 0 {
		o.notify(ctx, notice.ShadowRefused, notice.Notice{Err: no})
		return
	}
	told := ctx
	ctx, cancel := o.within(ctx)
	defer cancel()
	if end, ok := ctx.Deadline(); ok {
		o.budget = time.Until(end)
	}
	if err := o.enter(); err != nil {
		o.unobserved(told, err)
		return
	}
	var seen *Record
	if no != nil {
		seen, err = o.look(ctx)
		if o.heard(told, err); err != nil {
			o.unobserved(told, err)
			return
		}
	}
	for range maxRounds {
		d := protocol.Decision{Do: protocol.DoCreate}
		if seen != nil {
			d = protocol.Next(seen, o.claimEvent(), o.engine.now())
		}
		switch d.Do {
		case protocol.DoCreate, protocol.DoReplace, protocol.DoTakeOver:
			if no != nil {
				o.notify(told, notice.ShadowRefused, notice.Notice{Err: no})
				return
			}
			c := o.newClaim(seen, d.Do)
			// It is never watched, and TTL deletes it.
			c.Record.Value, c.Record.Due = "", time.Time{}
			c.Record.ExpiresAt = o.expires(c.Record.LeaseUntil)
			err := o.engine.store.Acquire(ctx, o.engine.now(), c)
			o.heard(told, err)
			if err == nil || !isAnswer(err) {
				failed, ok := errors.AsType[*StoreError](err)
				o.claims, o.sent, o.a.rec = err == nil || !ok || failed.Ambiguous, err, c.Record
				if !o.claims {
					o.unobserved(told, err)
				}
				return
			}
			if seen, err = o.existing(ctx, err); err != nil {
				o.unobserved(told, err)
				return
			}
		case protocol.DoReplay, protocol.DoInFlight:
			o.notify(told, notice.ShadowDuplicate, notice.Notice{Attempt: seen.Attempt, State: seen.State})
			return
		case protocol.DoPark, protocol.DoUnknown:
			o.notify(told, notice.ShadowDuplicate, notice.Notice{Attempt: seen.Attempt, State: Unknown})
			return
		case protocol.DoReused:
			o.notify(told, notice.ShadowReused, notice.Notice{Attempt: seen.Attempt})
			return
		default:
			o.unobserved(told, ErrRecordUnreadable)
			return
		}
	}
	o.unobserved(told, errors.New("idem: the record changes all the time"))
}

func (o *observation) unobserved(ctx context.Context, err error) {
	o.notify(ctx, notice.ShadowUnobserved, notice.Notice{Err: err})
}

// within bounds the store calls, by a tenth of the time that is left too. The caller's
// cancellation is the handler's affair.
func (o *observation) within(ctx context.Context) (context.Context, context.CancelFunc) {
	budget := o.engine.opts.ClaimBudget / shadowShare
	if end, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(end)/10)
	}
	if !o.endByProcess.IsZero() {
		budget = min(budget, time.Until(o.endByProcess)/10)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), budget)
}

func (o *observation) expires(lease time.Time) time.Time {
	return ceil(lease.Add(o.call.Key.op.retention()), time.Second)
}

// renew renews the claim while the handler runs, where nothing says when it is killed. What
// becomes of that is seen when the handler has ended.
func (o *observation) renew() (stop func()) {
	if !o.claims || !o.kill.IsZero() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := o.engine
	go func() {
		beat := time.NewTicker(e.opts.Lease / beats)
		defer beat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			}
			until := ceil(e.now().Add(e.opts.Lease), time.Millisecond)
			within, cancel := context.WithTimeout(ctx, e.opts.Lease/(2*beats))
			_ = e.store.Extend(within, e.now(), protocol.Extension{
				ID: o.a.rec.ID, Owner: o.a.rec.Owner, Write: o.a.writeID(), LeaseUntil: until, ExpiresAt: o.expires(until),
			})
			cancel()
		}
	}()
	return cancel
}

// judge says what the answer means for the record, as in the live mode. Steps are undone
// as where a call fails open; the answer stays the handler's own, whatever comes of that.
func (o *observation) judge(ctx context.Context, ans Answer) (c Class, f *Failure) {
	defer func() {
		if p := recover(); p != nil {
			c, f = ClassUncertain, &Failure{Message: protocol.Panicked("the operation's own rule", p).Error(), Type: "panic"}
		}
	}()
	c = o.applySteps(ctx, o.a, &ans, o.rule(ctx, o.a, ans))
	c, _ = o.a.response(c, ans, nil)
	if c == ClassCompleted {
		ans.Err = nil
	}
	return c, failureOf(ans.Err)
}

// finish records how the first call ended, without its result, and tells it.
func (o *observation) finish(ctx context.Context, c Class, f *Failure) {
	if !o.claims {
		return
	}
	end := o.ending(o.a, c, Answer{}, f).Ending
	n := notice.Notice{Attempt: o.a.rec.Attempt, State: end.State}
	end.Ref, end.Omitted = "", end.State == Completed
	if end.State == Unknown {
		// No open question: a later call is told the same of a record that expires.
		end.State, end.Stricter = Released, true
	}
	end.ExpiresAt = o.engine.expiry(o.engine.now(), o.call.Key.op.retention(), 0)
	told := ctx
	ctx, cancel := o.within(ctx)
	defer cancel()
	err := o.engine.store.Finish(ctx, o.engine.now(), protocol.Finish{ID: o.a.rec.ID, Owner: o.a.rec.Owner, Write: o.a.writeID(), Ending: end})
	conflict, lost := errors.AsType[*protocol.ConflictError](err)
	switch {
	case err != nil && o.sent != nil:
		o.unobserved(told, o.sent)
		return
	case lost:
		n.Err, n.State = ErrLeaseLost, Absent
		if conflict.Existing != nil {
			n.State = conflict.Existing.State
		}
	case err != nil:
		o.unobserved(told, err)
		return
	}
	o.notify(told, notice.ShadowExecuted, n)
}

// observe is [Run] in shadow: what fn returns reaches the caller untouched.
func observe[In, Out any](ctx context.Context, e *Engine, key Key, in In, fn func(context.Context, In) (Out, error), no error) (Result[Out], error) {
	var res Result[Out]
	c := Call{Key: key, NoClaim: no}
	if no == nil {
		c.Fingerprint, c.NoClaim = observedFingerprint(e, &in)
	}
	var err error
	c.Run = func(ctx context.Context) Answer {
		var own error
		res.Value, own = fn(ctx, in)
		return Answer{Value: res.Value, Err: own}
	}
	res.Outcome, err = e.Execute(ctx, c)
	return res, err
}

// observedFingerprint is an input's, or why there is none: a type's own encoder may panic.
func observedFingerprint[In any](e *Engine, in *In) (fp Fingerprint, err error) {
	defer func() {
		if p := recover(); p != nil {
			fp, err = "", protocol.Panicked(fmt.Sprintf("idem: encoding %T", *in), p)
		}
	}()
	return codec.Fingerprint(in)
}
