package idem

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// returnTime bounds the call that gives a place back. Without it the place is found to be free
// when it is needed.
const returnTime = 500 * time.Millisecond

// closed gives back the place of a record of the call's that is known to be in the state, after
// the attempt or a later one.
func (x *execution) closed(ctx context.Context, s State, attempt int) {
	if l := x.call.Key.op.Limit; l != nil {
		budget := x.within(returnTime)
		if budget < leastFinish {
			return // what is left is for the answer
		}
		x.engine.closed(context.WithoutCancel(ctx), budget, l, x.call.Key.id, s, attempt)
	}
}

func (e *Engine) closed(ctx context.Context, budget time.Duration, l protocol.Limit, id string, s State, attempt int) {
	if s != Completed && s != Failed && s != Released {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	_ = l.Closed(ctx, e.store, e.now(), id, attempt)
}
