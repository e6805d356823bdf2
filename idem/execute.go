package idem

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
)

// Execute claims the key and runs the handler, or answers with the recorded outcome, or with one of
// the package's errors. A handler's error is returned as it is; a recorded failure is a
// [*RecordedError]. Another operation's handler gets the error without its marks: see [NotExecuted].
func (e *Engine) Execute(ctx context.Context, c Call) (Outcome, error) {
	if err := c.check(e.traits); err != nil && (!c.Key.op.Shadow || c.Later != nil) {
		return Outcome{}, err
	}
	if c.Keyless {
		e.report(ctx, notice.Keyless, c.Key.id, notice.Notice{})
	}
	if outer := attemptOf(ctx); outer != nil {
		outer.signs.Store(true)
		out, err := e.execute(ctx, c)
		return out, border(err)
	}
	return e.execute(ctx, c)
}

// execute makes the call, as what is said about calls of its operation goes around it.
func (e *Engine) execute(ctx context.Context, c Call) (Outcome, error) {
	switch op := &c.Key.op; {
	case op.Shadow && c.Later == nil:
		return e.observe(ctx, c)
	case op.OnStoreFailure == FailOpen:
		return e.failOpen(ctx, c)
	}
	return e.begin(c).execute(ctx)
}

func (e *Engine) begin(c Call) *execution {
	c.Fingerprint = c.Key.fingerprint(c.Fingerprint)
	x := &execution{engine: e, call: c, begun: e.now(), called: time.Now()}
	if c.Later != nil {
		x.later = newAcceptance(c.Later)
	}
	return x
}

// execute claims the key and runs the handler, or answers.
func (x *execution) execute(ctx context.Context) (Outcome, error) {
	if err := x.schedule(ctx); err != nil && x.budget <= 0 {
		return Outcome{}, x.turnedAway(ctx, err)
	} else if err != nil && x.call.NoClaim == nil {
		// What is recorded needs none of the handler's time.
		x.call.NoClaim = err
	}
	a, out, err := x.claim(ctx)
	if a == nil {
		return out, err
	}
	return x.run(ctx, a)
}
