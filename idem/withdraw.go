package idem

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// withdraw takes back a claim whose reply never came. What is not done by the given
// time is queued.
func (x *execution) withdraw(ctx context.Context, c protocol.Claim, by time.Time) {
	e := x.engine
	budget, cancel := context.WithDeadline(context.WithoutCancel(ctx), by)
	defer cancel()
	w := protocol.Withdrawal{Claim: c, Owner: newID(), Uncertain: c.Record.Uncertain}
	w.Write = w.Owner
	if len(c.Record.Steps) == 0 {
		w.ExpiresAt = protocol.RoundUp(e.now().Add(max(c.Record.Retention, guard.LateRequests)), time.Second)
	}
	err := e.store.Withdraw(budget, e.now(), w)
	if err == nil || protocol.Answers(err) {
		x.notify(ctx, notice.Withdrawn, notice.Notice{Attempt: c.Record.Attempt, State: Released})
		return
	}
	e.pending.KeepWithdrawal(ctx, w, x.kill.IsZero(), err)
}
