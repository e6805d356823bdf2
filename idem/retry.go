package idem

import (
	"context"
	"math/rand/v2"
	"time"
)

// Defaults of [RetryConfig]: they fit into an invocation, which waits meanwhile.
const (
	DefaultMaxAttempts  = 3
	DefaultInitialDelay = 100 * time.Millisecond
	DefaultMaxDelay     = 5 * time.Second
	DefaultBackoffRate  = 2
)

// longestDelay keeps the arithmetic from overflowing, whatever the rate.
const longestDelay = 24 * time.Hour

// RetryConfig says how a step tries again within its attempt. It never waits past
// the context's deadline: the error is returned instead. Errors marked [Permanent]
// are not tried again; of an [AtMostOnce] step only those marked [NotExecuted] are.
// Delays have full jitter.
type RetryConfig struct {
	// MaxAttempts counts the tries, the first one included. Zero means
	// [DefaultMaxAttempts].
	MaxAttempts int
	// InitialDelay is the longest wait before the second try, MaxDelay the longest
	// of all. Zero means [DefaultInitialDelay] and [DefaultMaxDelay]; at most a day.
	InitialDelay, MaxDelay time.Duration
	// BackoffRate multiplies the delay after each try. Zero means
	// [DefaultBackoffRate].
	BackoffRate float64
}

func (c RetryConfig) withDefaults() RetryConfig {
	if c.MaxAttempts == 0 {
		c.MaxAttempts = DefaultMaxAttempts
	}
	if c.InitialDelay == 0 {
		c.InitialDelay = DefaultInitialDelay
	}
	if c.MaxDelay == 0 {
		c.MaxDelay = DefaultMaxDelay
	}
	if c.BackoffRate == 0 {
		c.BackoffRate = DefaultBackoffRate
	}
	return c
}

func (c RetryConfig) problem() string {
	switch {
	case c.MaxAttempts < 0:
		return "RetryConfig.MaxAttempts is negative"
	case c.InitialDelay < 0 || c.MaxDelay < 0:
		return "a delay of RetryConfig is negative"
	case c.InitialDelay > longestDelay || c.MaxDelay > longestDelay:
		return "a delay of RetryConfig is over a day: a step waits within its attempt"
	case c.BackoffRate != 0 && !(c.BackoffRate >= 1 && c.BackoffRate <= 100):
		return "RetryConfig.BackoffRate is not between 1 and 100"
	}
	return ""
}

// wait sleeps before the try after the given one. It returns false if there is no
// such try, or no time for it.
func (c RetryConfig) wait(ctx context.Context, tried int) bool {
	if tried >= c.MaxAttempts {
		return false
	}
	delay := c.InitialDelay
	for range tried - 1 {
		delay = min(time.Duration(float64(delay)*c.BackoffRate), c.MaxDelay)
	}
	delay = rand.N(min(delay, c.MaxDelay) + 1)
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
