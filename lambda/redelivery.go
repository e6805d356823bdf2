package idemlambda

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// redeliverAll is redeliverFrom of a source that delivers an event as a whole.
func redeliverAll[R any](ds []delivery[R]) int {
	if _, back := firstRedelivered(ds); back {
		return 0
	}
	return len(ds)
}

// wholeEvent returns the error of the first record that is redelivered, for a source that
// delivers an event as a whole. The service then delivers all records again, and those
// that are done are replayed.
func wholeEvent[R any](ds []delivery[R]) error {
	for i := range ds {
		o := &ds[i].out
		if o.Reason.Acknowledges() {
			continue
		}
		if o.Err != nil {
			return toRuntime(o.Err)
		}
		return fmt.Errorf("idemlambda: %s: %s", ds[i].name, o.Reason)
	}
	return nil
}

// firstRedelivered returns the index of the first record that is redelivered.
func firstRedelivered[R any](ds []delivery[R]) (at int, back bool) {
	for i := range ds {
		if !ds[i].out.Reason.Acknowledges() {
			return i, true
		}
	}
	return 0, false
}

// redeliveryTime is the OnRedelivery hook's time. For a queue it is enough for one call
// for every ten messages, and a retry.
const redeliveryTime = 2 * time.Second

// tellRedelivery passes the deliveries that are not acknowledged to the hook.
func (s *source[R]) tellRedelivery(ctx context.Context, ds []delivery[R]) {
	if s.opts.OnRedelivery == nil {
		return
	}
	var all []Delivery[R]
	for i := range ds {
		if !ds[i].out.Reason.Acknowledges() {
			all = append(all, ds[i].out)
		}
	}
	if len(all) == 0 {
		return
	}
	limit := redeliveryTime
	if kill, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(kill)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	runIsolated(func() {
		defer func() {
			if r := recover(); r != nil {
				s.logPanic(ctx, "OnRedelivery", protocol.RedactPanic("the hook", r))
			}
		}()
		s.opts.OnRedelivery(ctx, all)
	})
}
