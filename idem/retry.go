package idem

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Defaults of [Retry]: they fit into an invocation, which waits for the retries.
const (
	defaultInitialDelay = 100 * time.Millisecond
	defaultMaxDelay     = 5 * time.Second
	defaultBackoffRate  = 2
)

// longestDelay keeps the arithmetic from overflowing, whatever the rate.
const longestDelay = 24 * time.Hour

// Retry says how a step tries again within its attempt. It never waits past the context's deadline: the error is
// returned instead. Errors marked [Permanent] are not tried again; of an [AtMostOnce] step only those marked
// [NotExecuted] are. Delays have full jitter.
type Retry struct {
	// MaxTries counts the tries, the first one included. Zero means one: no retry.
	MaxTries int
	// InitialDelay is the longest wait before the second try, MaxDelay the longest of
	// all. Zero means 100 ms and 5 s; at most a day.
	InitialDelay, MaxDelay time.Duration
	// BackoffRate multiplies the delay after each try. Zero means 2.
	BackoffRate float64
}

func (r Retry) problem() string {
	switch {
	case r.MaxTries < 0:
		return fmt.Sprintf("Retry.MaxTries is %d: it cannot be negative", r.MaxTries)
	case r.MaxTries == 0 && r != Retry{}:
		return "Retry has delays and no MaxTries: say how many tries there may be, the first one included"
	case r.InitialDelay < 0 || r.MaxDelay < 0:
		return "a delay of Retry is negative"
	case r.InitialDelay > longestDelay || r.MaxDelay > longestDelay:
		return "a delay of Retry is over a day: a step waits within its attempt"
	case r.BackoffRate != 0 && !(r.BackoffRate >= 1 && r.BackoffRate <= 100):
		return "Retry.BackoffRate is not between 1 and 100"
	}
	return ""
}

// wait sleeps before the try after the given one. It returns false if there is no
// such try, or no time for it.
func (r Retry) wait(ctx context.Context, tried int) bool {
	if tried >= r.MaxTries {
		return false
	}
	delay, longest := cmp.Or(r.InitialDelay, defaultInitialDelay), cmp.Or(r.MaxDelay, defaultMaxDelay)
	for range tried - 1 {
		delay = min(time.Duration(float64(delay)*cmp.Or(r.BackoffRate, defaultBackoffRate)), longest)
	}
	delay = rand.N(min(delay, longest) + 1)
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= delay {
		return false
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
