package idem

import (
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
)

// expiry is when an outcome ends that is sent now. No retention is so short that the
// outcome could expire before its own write has landed.
func (e *Engine) expiry(now time.Time, retention time.Duration, size int) time.Time {
	return guard.Expiry(now, retention, e.opts.FinishBudget, size)
}
