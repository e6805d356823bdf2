package idem

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// expiry is when an outcome ends that is sent now. No retention is so short that the
// outcome could expire before its own write has landed.
func (e *Engine) expiry(now time.Time, retention time.Duration, size int) time.Time {
	return protocol.RoundUp(now.Add(max(retention, e.opts.FinishBudget+sizeAllowance(size))), time.Second)
}
