package idem

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
)

// execution is one call of Execute: what it was asked for, and the time that it has.
type execution struct {
	engine       *Engine
	later        *acceptance // of a call that accepts its operation for later
	call         Call
	begun        time.Time
	endByEngine  time.Time     // of the invocation, by the engine's clock; zero outside Lambda
	kill         time.Time     // endByEngine, zero where the invocation's end kills nothing
	endByProcess time.Time     // of the invocation, by the process's clock
	guard        time.Duration // before the invocation's end
	budget       time.Duration // for the store, before the claim
	called       time.Time     // when it began, by the process's clock
	down         error         // why no first claim could be written
	ran          atomic.Int64  // from called until the handler has returned, 0 before
}

func (x *execution) notify(ctx context.Context, kind notice.Kind, n notice.Notice) {
	k := &x.call.Key
	n.ID, n.Tenant, n.Operation = k.id, k.tenant, k.op.Name
	n.Elapsed = x.engine.now().Sub(x.begun)
	switch kind {
	case notice.Claimed, notice.TookOver:
		n.Took = time.Since(x.called)
	case notice.Completed, notice.Failed, notice.Released, notice.Parked:
		if ran := time.Duration(x.ran.Load()); ran > 0 {
			n.Took = time.Since(x.called) - ran
		}
	}
	x.engine.tell(ctx, kind, n)
}
