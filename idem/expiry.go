package idem

import (
	"time"
)

// expiry is when an outcome ends that is sent now. No retention is so short that the
// outcome could expire before its own write has landed.
func (e *Engine) expiry(now time.Time, retention time.Duration, size int) time.Time {
	return ceil(now.Add(max(retention, e.opts.FinishBudget+sizeAllowance(size))), time.Second)
}

// ceil rounds a time up to what the store keeps, so that nothing ends earlier
// than promised.
func ceil(t time.Time, to time.Duration) time.Time {
	if r := t.Truncate(to); r.Before(t) {
		return r.Add(to)
	} else {
		return r
	}
}
