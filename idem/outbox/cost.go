package outbox

import "time"

const (
	// fair is the time of a request that does not burden other destinations.
	fair = 500 * time.Millisecond
	// rest is how long a destination that has used up its time is left to the sweep.
	rest = time.Minute
	// pause is how long a destination is left to the sweep after calls that fail in a row,
	// even if they fail fast: its messages should not be read again with every batch.
	pause = 10 * time.Second
)

// cost is how much time a destination has cost the others in this process.
type cost struct {
	spent    time.Duration
	as       time.Time // of spent
	failures int       // calls in a row that failed as a whole
	until    time.Time // until then the stream sends nothing to the destination
}

// charge adds the time of a call of the destination's sender: all of it if the call failed
// as a whole, and otherwise the part above fair. In a minute the sum shrinks by as much as a
// destination may spend.
func (r *Relay) charge(destination string, took time.Duration, failed, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cost[destination]
	if c == nil {
		c = &cost{}
		r.cost[destination] = c
	}
	c.failures++
	if !failed {
		took, c.failures = max(took-fair, 0), 0
	}
	now := time.Now()
	worn := time.Duration(float64(now.Sub(c.as)) / float64(rest) * float64(r.opts.Patience))
	c.spent, c.as = max(c.spent-worn, 0)+took, now
	switch {
	case late || c.spent >= r.opts.Patience:
		c.spent, c.until = 0, now.Add(rest)
	case c.failures >= giveUp && c.until.Before(now.Add(pause)):
		c.until = now.Add(pause)
	case !failed && took == 0:
		c.until = time.Time{}
	}
}

// rests reports whether the stream sends nothing to the destination for now.
func (r *Relay) rests(destination string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cost[destination]
	return c != nil && c.until.After(time.Now())
}
