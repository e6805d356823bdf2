package idemlambda

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// redeliverAll is redeliverFrom of a source that delivers an event as a whole.
func redeliverAll[R any](ds []delivery[R]) int {
	if firstRedelivered(ds) < len(ds) {
		return 0
	}
	return len(ds)
}

// wholeEvent returns the error of the first record that is redelivered, for a source that
// delivers an event as a whole. The service then delivers all records again, and those
// that are done are replayed.
func wholeEvent[R any](ds []delivery[R]) error {
	at := firstRedelivered(ds)
	if at == len(ds) {
		return nil
	}
	if err := ds[at].out.Err; err != nil {
		return toRuntime(err)
	}
	return fmt.Errorf("idemlambda: %s: %s", ds[at].name, ds[at].out.Reason)
}

// firstRedelivered returns the index of the first record that is redelivered, and len(ds) if there
// is none.
func firstRedelivered[R any](ds []delivery[R]) int {
	for i := range ds {
		if !ds[i].out.Reason.Acknowledges() {
			return i
		}
	}
	return len(ds)
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
