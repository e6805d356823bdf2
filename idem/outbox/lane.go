package outbox

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
)

// lane is a queue of messages that are sent one after the other: those of a [Lane], or a
// single one without an ordering key.
type lane struct {
	entries []*Entry // the first is the next
	// full: more messages may wait than those in entries; behind waits for them.
	full   bool
	behind []*Entry
	// stopped: this run sends nothing more of it.
	stopped bool
	// through: all entries were sent or given up.
	through bool
	// failed: the first was tried in this run.
	failed bool
	// broken: the result of the first could not be noted.
	broken bool
	// counted: the try under way was noted before it was made.
	counted bool
	// missed: the stream should have made the try under way.
	missed bool
}

// add appends a message to the waiting ones.
func (l *lane) add(e *Entry) {
	if l.full {
		l.behind = append(l.behind, e)
	} else {
		l.entries = append(l.entries, e)
	}
}

// goes reports whether the lane's next message can be tried.
func (x *run) goes(l *lane) bool {
	if len(l.entries) > 0 && !x.isDue(l.entries[0]) {
		l.stopped = true
	}
	return len(l.entries) > 0 && !l.stopped
}

// announce notes a try before it is made, if the process of an earlier one may have died:
// otherwise a message that ends the relay's process would be tried forever. It also does
// so if another relay may be sending the message.
func (x *run) announce(l *lane) bool {
	e := l.entries[0]
	now := time.Now()
	late := x.polls || now.Sub(e.Created) >= x.opts.Grace
	l.missed = late && e.State == New && !x.stream && !x.polls
	if l.counted = late || e.State == Retrying; !l.counted {
		return true
	}
	if e.Tries >= x.maxTries() {
		x.deadLetter(x.ctx, l, now, e.Tries, cmp.Or(e.Reason, "no try came to an end"))
		return false
	}
	tries := e.Tries + 1
	// No other relay begins a try while this one may still run.
	next := now.Add(max(x.pause(tries), x.limit()+margin))
	ok, err := x.store.Begin(x.ctx, e, tries, next)
	switch {
	case err != nil:
		x.breakOff(l, err)
	case !ok && e.OrderingKey == "":
		// Another relay is sending it, or has sent it.
		x.done(l, func(r *Report) { r.Skipped++ })
	case !ok:
		l.stopped = true // the messages behind it must wait for that try
	default:
		e.Tries, e.NextTry, e.State = tries, next, Retrying
		return true
	}
	return false
}

// record notes the result of the try of a lane's first message.
func (x *run) record(l *lane, sent Sent) {
	e := l.entries[0]
	now := time.Now()
	ctx, done := x.noting()
	defer done()
	if sent.Err == nil {
		// If the note may be missing, the message is sent once more, under the same id of ours and another
		// one of the service's.
		if _, err := x.store.Dispatch(ctx, now, e, bounded(sent.ID, MaxSentID), now.Add(keep)); err != nil {
			x.breakOff(l, err)
			return
		}
		x.done(l, func(r *Report) {
			r.Sent++
			if l.missed {
				r.Missed++
			}
		})
		return
	}
	reason := bounded(sent.Err.Error(), maxReason)
	if errors.Is(sent.Err, ErrNotSent) {
		x.untried(ctx, l, now, reason)
		return
	}
	tries := e.Tries
	if !l.counted {
		tries++
	}
	if errors.Is(sent.Err, ErrRejected) || tries >= x.maxTries() {
		x.deadLetter(ctx, l, now, tries, reason)
		return
	}
	next := now.Add(x.pause(tries))
	if _, err := x.store.Retry(ctx, e, tries, next, reason); err != nil {
		x.breakOff(l, err)
		return
	}
	x.note(func(r *Report) {
		r.Failed++
		r.problem("%s: %s", e.Destination, reason)
	})
	e.Tries, e.NextTry, e.State = tries, next, Retrying
	if l.stopped, l.failed = true, true; e.OrderingKey == "" {
		l.entries = nil // the sweep sends it when it is due
	}
}

// bounded is the beginning of a text, in valid UTF-8.
func bounded(text string, bytes int) string {
	return strings.ToValidUTF8(text[:min(len(text), bytes)], "?")
}

// untried takes back a try that was noted and has not been made.
func (x *run) untried(ctx context.Context, l *lane, now time.Time, reason string) {
	l.stopped = true
	e := l.entries[0]
	if !l.counted {
		return
	}
	if _, err := x.store.Retry(ctx, e, e.Tries-1, now, reason); err != nil {
		x.breakOff(l, err)
		return
	}
	e.Tries, e.NextTry = e.Tries-1, now
}

func (x *run) deadLetter(ctx context.Context, l *lane, now time.Time, tries int, reason string) {
	e := l.entries[0]
	ok, err := x.store.DeadLetter(ctx, now, e, tries, reason)
	if err != nil {
		x.breakOff(l, err)
		return
	}
	x.done(l, func(r *Report) {
		if ok {
			r.Dead++
			r.problem("%s: dead letter: %s", e.Destination, reason)
		}
	})
}

// done takes the first message from its lane.
func (x *run) done(l *lane, count func(*Report)) {
	l.entries = l.entries[1:]
	x.note(count)
}

// breakOff ends a lane whose first message could not be noted.
func (x *run) breakOff(l *lane, err error) {
	x.note(func(r *Report) { r.problem("%v", err) })
	l.stopped, l.broken = true, true
}

// deferred is the reason of a message that is left to the sweep without a try.
const deferred = "not tried: its destination, or one before it with its ordering key, had failed"

// leave ends the rest of a lane. In the stream's run messages with an ordering key get a
// note, in their order, that they are left to the sweep. Later messages find them by it.
func (x *run) leave(l *lane) {
	if len(l.entries) == 0 {
		l.stopped, l.through = true, !l.failed && !l.stopped
	}
	l.entries = append(l.entries, l.behind...)
	if len(l.entries) == 0 {
		return
	}
	left := 0
	switch {
	case l.broken || !l.stopped && !x.isDown(l.entries[0].Destination):
		// Time is up: messages that the stream delivers again are tried again.
	case x.stream && l.entries[0].OrderingKey != "":
		left = x.handOver(l)
	default:
		left = len(l.entries)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report.Deferred += left
	if l.failed && left > 0 {
		x.report.Deferred--
	}
	x.report.Left += len(l.entries) - left
	for _, e := range l.entries[left:] {
		x.again[e] = true
	}
}

// handOver notes that the lane's messages are left to the sweep, and returns how many have
// the note.
func (x *run) handOver(l *lane) int {
	for n, e := range l.entries {
		if e.State == Retrying {
			continue
		}
		// If the note is refused, another relay has tried, sent or given up the message,
		// and has noted that.
		if _, err := x.store.Retry(x.ctx, e, e.Tries, time.Now(), deferred); err != nil {
			x.note(func(r *Report) { r.problem("%v", err) })
			return n
		}
	}
	return len(l.entries)
}

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
