package idem

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/idem/internal/codec"
	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// shadowShare of [Options.ClaimBudget] bounds the store calls of a call in shadow, before its
// handler and once more after it: a quarter of a second, several times what DynamoDB takes over
// a new connection.
const shadowShare = 4

// observation is a call in shadow. It makes the call of the live mode on records of its own, and
// runs the handler whatever comes of that.
type observation struct {
	engine   *Engine
	call     Call
	handler  *attempt // the handler's, whose steps are recorded nowhere
	id       string   // of the shadow's record; empty if there can be none
	begun    time.Time
	answer   Answer
	ran      atomic.Bool
	reported atomic.Bool // what the live mode would have answered is reported
}

// observe runs the handler of a call in shadow and reports what the live mode would have
// answered. Nothing but the handler decides what the caller gets.
func (e *Engine) observe(ctx context.Context, c Call) (Outcome, error) {
	if err := c.Key.op.Check(); err != nil {
		return Outcome{}, err
	}
	if c.Run == nil {
		return Outcome{}, c.check(e.traits)
	}
	o := &observation{engine: e, call: c, begun: e.now()}
	o.handler = &attempt{key: c.Key, rec: Record{Owner: protocol.NewID(), Attempt: 1}, shadow: true}
	o.live(ctx)
	if !o.ran.Load() {
		o.run(ctx)
		o.judge(ctx)
	}
	ans := o.answer
	out := Outcome{Body: ans.Body, Executed: true, Omitted: ans.Omitted != nil, ResponseVersion: ans.ResponseVersion}
	return out, Unmark(ans.Err)
}

// live makes the call of the live mode on the shadow's record.
func (o *observation) live(ctx context.Context) {
	c := o.call
	err := c.check(o.engine.traits)
	if err == nil {
		o.id = protocol.ShadowID(c.Key.id)
	}
	if c.Key.Err() != nil {
		// A usable key's token is sent again by a retry. This one is shared by nothing.
		o.handler.key.id = recordID(SingleTenant, c.Key.op.Name, sha256.Sum256([]byte(protocol.NewID())))
	}
	if c.NoClaim != nil && err != nil {
		err = c.NoClaim
	}
	if _, unread := errors.AsType[*protocol.UnobservedError](c.NoClaim); unread {
		o.tell(ctx, notice.ShadowUnobserved, notice.Notice{Err: c.NoClaim})
		return
	}
	if err != nil {
		o.tell(ctx, notice.ShadowRefused, notice.Notice{Err: err})
		return
	}
	c.Key.id = o.id
	c.Fingerprint = o.call.Key.fingerprint(c.Fingerprint)
	c.Key.keyed = nil // a trial checks no secret
	c.Key.op.OnStoreFailure, c.Key.op.Classify = FailClosed, nil
	c.Run = func(context.Context) Answer {
		o.run(ctx)
		return Answer{Class: o.judge(ctx), Err: o.answer.Err}
	}
	if _, err := o.shadow(ctx).begin(c).execute(ctx); err != nil {
		o.tell(ctx, notice.ShadowRefused, notice.Notice{Err: err})
	}
}

// run runs the handler, with the caller's context.
func (o *observation) run(ctx context.Context) {
	o.ran.Store(true)
	x := &execution{engine: o.engine.over(keepsNothing{}), call: o.call, begun: o.begun}
	ctx = context.WithValue(ctx, attemptKey{}, o.handler)
	o.handler.running.Store(&lease{ctx: ctx, cancel: func(error) {}, x: x, a: o.handler})
	defer func() { _ = o.handler.journal.close() }()
	o.answer = o.call.Run(ctx)
}

// judge says what the answer means for the record, as in the live mode. Steps are undone; the
// answer stays the handler's own, whatever comes of that.
func (o *observation) judge(ctx context.Context) (c Class) {
	defer func() {
		if p := recover(); p != nil {
			c = ClassUncertain
		}
	}()
	x, ans := o.handler.running.Load().x, o.answer
	c = x.applySteps(ctx, o.handler, &ans, x.rule(ctx, o.handler, ans))
	c, _ = o.handler.response(c, ans, nil)
	return c
}

// shadow is the engine of one call in shadow: over the records of shadows, within a share of the
// time that is left, and with the observation in place of the observer.
func (o *observation) shadow(ctx context.Context) *Engine {
	e := o.engine
	s := e.over(keepsNothing{})
	s.unrecorded, s.store = false, &shadows{e.store, o.call.Key.op.retention()}
	s.opts.Observer, s.opts.Pauses = o.observe, e.opts.Pauses
	s.opts.Wait = 0
	s.opts.ClaimBudget /= shadowShare
	if end, ok := ctx.Deadline(); ok {
		s.opts.ClaimBudget = min(s.opts.ClaimBudget, time.Until(end)/10)
	}
	if kill, ok := e.killTime(ctx); ok {
		s.opts.ClaimBudget = min(s.opts.ClaimBudget, time.Until(kill)/10)
	}
	s.opts.FinishBudget = s.opts.ClaimBudget
	s.pending = guard.NewPending(s.store, s.now, s.opts.FinishBudget, s.report)
	s.pending.Bound(0)
	return s
}

// observe reports what a notice of the live mode says of the call.
func (o *observation) observe(ctx context.Context, n notice.Notice) {
	switch n.Kind {
	case notice.Completed, notice.Failed, notice.Released, notice.LeaseLost:
		o.tell(ctx, notice.ShadowExecuted, n)
	case notice.Parked:
		kind := notice.ShadowDuplicate
		if o.ran.Load() {
			kind = notice.ShadowExecuted
		}
		o.tell(ctx, kind, n)
	case notice.Replayed, notice.InFlight, notice.Unknown:
		n.Err = nil
		o.tell(ctx, notice.ShadowDuplicate, n)
	case notice.Reused:
		n.State = ""
		o.tell(ctx, notice.ShadowReused, n)
	case notice.OutOfTime:
		o.tell(ctx, notice.ShadowRefused, n)
	case notice.StoreUnavailable, notice.Unreadable, notice.OutcomeDropped:
		n.State = ""
		o.tell(ctx, notice.ShadowUnobserved, n)
	}
}

// tell reports what the live mode would have answered, once.
func (o *observation) tell(ctx context.Context, kind notice.Kind, n notice.Notice) {
	if o.reported.Swap(true) {
		return
	}
	k := &o.call.Key
	n.ID, n.Tenant, n.Operation = o.id, k.tenant, k.op.Name
	n.Elapsed = o.engine.now().Sub(o.begun)
	o.engine.tell(ctx, kind, n)
}

// shadows keeps the records of shadows. They expire, hold no result, and are no open questions.
type shadows struct {
	Store
	retention time.Duration
}

func (s *shadows) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	c.Record.Value, c.Record.Due = "", time.Time{}
	c.Record.ExpiresAt = protocol.RoundUp(c.Record.LeaseUntil.Add(c.Record.Retention), time.Second)
	return s.Store.Acquire(ctx, now, c)
}

func (s *shadows) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	w.Claim.Record.Value, w.Claim.Record.Due = "", time.Time{}
	w.ExpiresAt = protocol.RoundUp(now.Add(max(s.retention, guard.LateRequests)), time.Second)
	return s.Store.Withdraw(ctx, now, w)
}

func (s *shadows) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	e.ExpiresAt = protocol.RoundUp(e.LeaseUntil.Add(s.retention), time.Second)
	return s.Store.Extend(ctx, now, e)
}

// Finish records how the first call ended. Of an open question it makes a record that answers
// later calls as that would, and expires.
func (s *shadows) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	end := &f.Ending
	end.Ref, end.Result, end.Omitted = "", nil, end.State == Completed
	if end.State == Unknown {
		end.State, end.Stricter, end.ExpiresAt = Released, true, protocol.RoundUp(now.Add(s.retention), time.Second)
	}
	return s.Store.Finish(ctx, now, f)
}

// Settle parks nothing: the record says already what a later call is answered.
func (s *shadows) Settle(context.Context, time.Time, protocol.Settlement) error { return nil }

// Result is none: what a first call returned is not kept.
func (s *shadows) Result(context.Context, *Record) ([]byte, error) { return nil, nil }

// observe is [Run] in shadow: what fn returns reaches the caller untouched.
func observe[In, Out any](
	ctx context.Context, e *Engine, key Key, in In, fn func(context.Context, In) (Out, error), no error,
) (Result[Out], error) {
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
			fp, err = "", protocol.RedactPanic(fmt.Sprintf("idem: encoding %T", *in), p)
		}
	}()
	return codec.Fingerprint(in)
}
