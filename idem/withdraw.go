package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// claimUnanswered deals with a claim whose reply never came. The claim is taken back,
// so that it cannot land later. first says that no record was seen.
func (x *execution) claimUnanswered(ctx context.Context, part *claimTime, c protocol.Claim, err error, first bool) (*attempt, Outcome, error) {
	var failed *StoreError
	maybe := !errors.As(err, &failed) || failed.Ambiguous
	if first && failed != nil && failed.Down {
		x.down = err
	}
	if maybe {
		x.withdraw(ctx, c, part.withdrawBy)
	}
	return nil, Outcome{}, x.unavailable(ctx, err)
}

// withdraw takes back a claim whose reply never came. What is not done by the given
// time is queued.
func (x *execution) withdraw(ctx context.Context, c protocol.Claim, by time.Time) {
	e := x.engine
	budget, cancel := context.WithDeadline(context.WithoutCancel(ctx), by)
	defer cancel()
	w := protocol.Withdrawal{Claim: c, Owner: newID(), Uncertain: c.Record.Uncertain}
	w.Write = w.Owner
	if len(c.Record.Steps) == 0 {
		w.ExpiresAt = ceil(e.now().Add(max(c.Record.Retention, fenceFor)), time.Second)
	}
	err := e.takeBack(budget, e.now(), w)
	if err == nil || protocol.Answers(err) {
		x.notify(ctx, notice.Withdrawn, notice.Notice{Attempt: c.Record.Attempt, State: Released})
		return
	}
	x.enqueue(ctx, &pendingWrite{withdrawal: ownWithdrawal(w), State: Released, Attempt: c.Record.Attempt}, err)
}
