package idem

import (
	"context"

	"github.com/idem-go/idempotency/idem/protocol"
)

// accept commits that the operation is accepted for later, with what hands it over.
func (x *execution) accept(ctx, hctx context.Context, a *attempt, ans Answer) (Outcome, error) {
	unit := a.unit.seal()
	_ = a.journal.close()
	c := commit{execution: x, a: a, ans: ans, outer: ctx, hctx: hctx}
	if ans.Err != nil {
		return c.endUncommitted(ctx)
	}
	return x.commit(ctx, hctx, a, ans, ending{Ending: protocol.Ending{State: Pending}}, unit)
}
