package idemtest

import (
	"sync/atomic"
	"time"
)

// Clock is the time of a harness: it runs with [time.Now], inside a
// testing/synctest bubble too, and can be moved ahead of it. It is safe for
// concurrent use. The zero value shows time.Now.
type Clock struct{ ahead atomic.Int64 }

// Now returns the clock's time, to be used as [idem.Options.Now].
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Advance moves the clock by d. Leases lapse and outcomes expire by this clock;
// deadlines of contexts and the engine's own waiting do not.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }
