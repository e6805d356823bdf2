package idem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultStoreFailures is Options.StoreFailures if that is zero.
	defaultStoreFailures = 5
	// circuitPause is how long no other call asks while the circuit is open.
	circuitPause = time.Second
	// circuitMemory is how long a failure counts at least: a process that was frozen, or idle,
	// does not go by what was before.
	circuitMemory = 10 * time.Second
)

// circuit keeps calls from asking a store that is down: it opens when some calls in a row
// have found it so. Then one call a second may ask, whatever becomes of the one before, and the
// first answer closes it. It is around what comes before a handler, and around nothing else: what has run
// is always written.
//
// It is our own because of the clock. The process may be frozen at any time, as Lambda does
// between invocations, and the monotonic clock may stand still then: the pause is over
// when either clock says so. Libraries go by the one that time.Time compares. A closed
// circuit costs one atomic load.
type circuit struct {
	least  int32         // failures in a row that open it; 0 for never
	memory time.Duration // [circuitMemory], or two claims' time
	// failed counts those in a row, until it is open.
	failed atomic.Int32

	mu     sync.Mutex
	latest instant // of the failures
	err    error   // of the latest one, which says nothing of another call: quoted alone
	asked  instant // when a call was let through, which may never come back
}

// instant is a time by both clocks.
type instant struct {
	monotonic time.Time
	wall      int64 // in milliseconds, which subtraction cannot take for monotonic
}

func rightNow() instant {
	now := time.Now()
	return instant{now, now.UnixMilli()}
}

// since is how long ago the other was, by the clock that says more.
func (i instant) since(other instant) time.Duration {
	return max(i.monotonic.Sub(other.monotonic), time.Duration(i.wall-other.wall)*time.Millisecond)
}

// pass returns nil if a call may ask the store: asks is set for the only one that may within
// a second while the circuit is open.
func (c *circuit) pass() (asks bool, err error) {
	if !c.open() {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open() {
		return false, nil
	}
	now := rightNow()
	ago := now.since(c.latest)
	switch quiet := min(ago, now.since(c.asked)); {
	case quiet >= c.memory:
		return false, nil
	case quiet >= circuitPause:
		c.asked = now
		return true, nil
	}
	return false, &StoreError{Op: "claim", Err: fmt.Errorf("not asked: %d calls in a row or more have found it down, the last one %v ago; one call a second asks it: %s",
		c.least, max(ago, 0).Round(time.Millisecond), textOf(c.err, c.err.Error))}
}

// open reports whether calls are kept from asking, but for one a second.
func (c *circuit) open() bool { return c.least > 0 && c.failed.Load() >= c.least }

// failure notes that a call has found the store down. It reports whether that opens it.
func (c *circuit) failure(err error, asked bool) (opened bool) {
	if c.least == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, n := rightNow(), c.failed.Load()
	old := n > 0 && now.since(c.latest) >= c.memory
	switch {
	case asked:
	case n >= c.least && !old:
		return false // it began before the circuit was open, and says nothing new
	case n < c.least:
		if old {
			n = 0
		}
		n++
		c.failed.Store(n)
		opened = n == c.least
	}
	c.latest, c.err = now, err
	return opened
}

// success notes that the store has answered. It reports whether that closes it.
func (c *circuit) success() (closed bool) {
	if c.failed.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	closed = c.failed.Load() >= c.least
	c.failed.Store(0)
	c.err = nil
	return closed
}
