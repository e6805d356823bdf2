package idem

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
)

// execution is one call of Execute: what it was asked for, and the time that it has.
type execution struct {
	engine       *Engine
	call         Call
	begun        time.Time
	endByEngine  time.Time     // of the invocation, by the engine's clock; zero outside Lambda
	kill         time.Time     // endByEngine, zero where the invocation's end kills nothing
	endByProcess time.Time     // of the invocation, by the process's clock
	guard        time.Duration // before the invocation's end
	budget       time.Duration // for the store, before the claim
}

func (x *execution) notify(ctx context.Context, kind notice.Kind, n notice.Notice) {
	if x.engine.opts.Observer == nil {
		return
	}
	k := &x.call.Key
	n.ID, n.Tenant, n.Operation = k.id, k.tenant, k.op.Name
	n.Elapsed = x.engine.now().Sub(x.begun)
	x.engine.tell(ctx, kind, n)
}
