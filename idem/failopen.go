package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// failOpen makes the call. If its claim could not be written since the store is down, and it has seen no record, it
// makes the call over a store that keeps nothing: a later call with the key runs again.
func (e *Engine) failOpen(ctx context.Context, c Call) (Outcome, error) {
	x := e.begin(c)
	out, err := x.execute(ctx)
	if x.down == nil || c.Accepted != nil || c.Later != nil || ctx.Err() != nil {
		return out, err
	}
	run := c.Run
	c.Run = func(inner context.Context) Answer {
		x.notify(ctx, notice.FailedOpen, notice.Notice{Attempt: 1, Err: x.down})
		return run(inner)
	}
	c.Fingerprint, c.Key.keyed = x.call.Fingerprint, nil // without a record there is no secret to check
	out, err = e.over(keepsNothing{down: x.down}).begin(c).execute(ctx)
	out.RecordState, out.RecordedAt, out.ExpiresAt = Absent, time.Time{}, time.Time{}
	if failed, ok := errors.AsType[*CommitError](err); ok {
		failed.State = Absent
	}
	return out, err
}

// over returns an engine over the store. What it reports of records goes to no observer, and it asks no pauses.
func (e *Engine) over(s keepsNothing) *Engine {
	o := &Engine{given: s, store: s, opts: e.opts, now: e.now, inLambda: e.inLambda, managed: e.managed,
		traits: e.traits, unrecorded: true}
	o.opts.Pauses = nil
	o.opts.Observer = func(ctx context.Context, n notice.Notice) {
		switch n.Kind {
		case notice.Executed, notice.Compensated, notice.OutOfTime, notice.Uncommitted:
			e.opts.Observer.tell(ctx, n)
		}
	}
	o.pending = guard.NewPending(s, o.now, o.opts.FinishBudget, o.report)
	return o
}

// keepsNothing is a store for attempts that are not recorded: each write lands, and there is
// never a record.
type keepsNothing struct {
	// down is why nothing is recorded. It refuses what must be recorded before it runs, and
	// units of work. Nil refuses nothing.
	down error
}

var _ Store = keepsNothing{}

func (s keepsNothing) RecordStep(_ context.Context, _ time.Time, w protocol.StepWrite) error {
	if w.Begin {
		return s.refusal("step")
	}
	return nil
}

func (s keepsNothing) Finish(_ context.Context, _ time.Time, f protocol.Finish) error {
	if f.Unit != nil {
		return s.refusal("finish")
	}
	return nil
}

func (s keepsNothing) refusal(op string) error {
	if s.down == nil {
		return nil
	}
	return &StoreError{Op: op, Err: errors.Join(errors.New("the operation runs without a record"), s.down)}
}

func (keepsNothing) Acquire(context.Context, time.Time, protocol.Claim) error       { return nil }
func (keepsNothing) Withdraw(context.Context, time.Time, protocol.Withdrawal) error { return nil }
func (keepsNothing) Extend(context.Context, time.Time, protocol.Extension) error    { return nil }
func (keepsNothing) RecordReference(context.Context, time.Time, protocol.ReferenceWrite) error {
	return nil
}
func (keepsNothing) Settle(context.Context, time.Time, protocol.Settlement) error { return nil }
func (keepsNothing) Get(context.Context, string) (*Record, error)                 { return nil, nil }
func (keepsNothing) Result(context.Context, *Record) ([]byte, error)              { return nil, nil }
func (keepsNothing) Traits() protocol.Traits                                      { return protocol.Traits{} }
func (keepsNothing) StepResult(context.Context, *Record, string) ([]byte, error)  { return nil, nil }
