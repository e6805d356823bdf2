package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// lane is a queue of messages that go one after the other: those with one
// destination and ordering key, or a single one without.
type lane struct {
	entries   []*Entry // the first is the next
	notBefore time.Time
	// stopped: nothing more of it is sent in this run.
	stopped bool
	// counted: the try under way was noted before it was made.
	counted bool
}

// run is one call of a relay: lanes side by side, in rounds.
type run struct {
	*Relay
	ctx  context.Context
	end  time.Time // nothing is sent later; zero for no end
	wait bool      // for an ordered message's next try, instead of leaving it

	mu     sync.Mutex
	report Report
	left   map[*Entry]bool // what was not brought to an end
}

func (r *Relay) begin(ctx context.Context, wait bool) *run {
	x := &run{Relay: r, ctx: ctx, wait: wait, left: map[*Entry]bool{}}
	if deadline, ok := ctx.Deadline(); ok {
		x.end = deadline.Add(-min(r.opts.Margin, time.Until(deadline)/4))
	}
	return x
}

// over reports whether there is no time to send anything at t.
func (x *run) over(t time.Time) bool {
	return x.ctx.Err() != nil || !x.end.IsZero() && !t.Before(x.end)
}

// all sends the lanes' messages until there are none, or time is up.
func (x *run) all(lanes []*lane) {
	for {
		now := time.Now()
		if x.over(now) {
			break
		}
		var next time.Time
		heads := map[string][]*lane{} // by destination
		open := lanes[:0]
		for _, l := range lanes {
			switch {
			case l.stopped || len(l.entries) == 0:
				x.leave(l)
				continue
			case l.notBefore.After(now):
				if next.IsZero() || l.notBefore.Before(next) {
					next = l.notBefore
				}
			default:
				d := l.entries[0].Destination
				heads[d] = append(heads[d], l)
			}
			open = append(open, l)
		}
		if lanes = open; len(lanes) == 0 {
			return
		}
		if len(heads) == 0 {
			x.sleep(next)
			continue
		}
		var g sync.WaitGroup
		for destination, lanes := range heads {
			g.Go(func() { x.round(destination, lanes) })
		}
		g.Wait()
	}
	for _, l := range lanes {
		x.leave(l)
	}
}

// sleep waits until t, or until time is up.
func (x *run) sleep(t time.Time) {
	if !x.end.IsZero() && t.After(x.end) {
		t = x.end
	}
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.ctx.Done():
	}
}

func (x *run) leave(l *lane) {
	for _, e := range l.entries {
		x.left[e] = true
	}
	x.report.Left += len(l.entries)
	l.entries = nil
}

// round tries the first message of each lane, all of one destination.
func (x *run) round(destination string, lanes []*lane) {
	ready := make([]bool, len(lanes))
	x.each(len(lanes), func(i int) { ready[i] = x.announce(lanes[i]) })
	var trying []*lane
	var messages []Message
	for i, l := range lanes {
		if ready[i] {
			trying = append(trying, l)
			messages = append(messages, l.entries[0].Message)
		}
	}
	if len(trying) == 0 {
		return
	}
	errs := x.send(destination, messages)
	x.each(len(trying), func(i int) { x.settle(trying[i], errs[i]) })
}

// each calls f side by side, a few at a time.
func (x *run) each(n int, f func(int)) {
	var g sync.WaitGroup
	slots := make(chan struct{}, notes)
	for i := range n {
		slots <- struct{}{}
		g.Go(func() {
			f(i)
			<-slots
		})
	}
	g.Wait()
}

// announce notes a try before it is made where an earlier one may have ended with
// the process that made it: else a message that takes the relay down with it
// would be tried without end.
func (x *run) announce(l *lane) bool {
	e := l.entries[0]
	now := time.Now()
	if l.counted = now.Sub(e.Created) >= x.opts.Grace; !l.counted {
		return true
	}
	if e.Tries >= x.opts.MaxTries {
		reason := e.Reason
		if reason == "" {
			reason = "no try came to an end"
		}
		x.park(l, now, e.Tries, reason)
		return false
	}
	tries := e.Tries + 1
	ok, err := x.store.Begin(x.ctx, e, tries, now.Add(x.pause(tries)))
	switch {
	case err != nil:
		x.broken(l, err)
	case !ok && e.OrderingKey == "":
		// Somebody else is at it, or has done it.
		x.done(l, func(r *Report) { r.Skipped++ })
	case !ok:
		l.stopped = true // what is behind it has to wait for that somebody
	default:
		e.Tries = tries
		return true
	}
	return false
}

// send calls the destination's sender, whatever that does.
func (x *run) send(destination string, messages []Message) (errs []error) {
	fail := func(err error) []error {
		errs := make([]error, len(messages))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	sender := x.senders[destination]
	if sender == nil {
		return fail(fmt.Errorf("the relay knows no destination %q: add its route, and have the message sent again", destination))
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.opts.SendTimeout)
	defer cancel()
	if !x.end.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, x.end)
		defer stop()
	}
	if errs = sender.Send(ctx, messages); len(errs) != len(messages) {
		return fail(fmt.Errorf("the sender for %q returned %d errors for %d messages", destination, len(errs), len(messages)))
	}
	return errs
}

// settle notes what became of the try of a lane's first message.
func (x *run) settle(l *lane, failed error) {
	e := l.entries[0]
	now := time.Now()
	if failed == nil {
		// Not noted, or not surely, it is sent once more, under the same id.
		if _, err := x.store.Dispatch(x.ctx, now, e, now.Add(x.opts.Keep)); err != nil {
			x.broken(l, err)
			return
		}
		x.done(l, func(r *Report) { r.Sent++ })
		return
	}
	tries := e.Tries
	if !l.counted {
		tries++
	}
	reason := cut(failed.Error())
	if errors.Is(failed, ErrRejected) || tries >= x.opts.MaxTries {
		x.park(l, now, tries, reason)
		return
	}
	next := now.Add(x.pause(tries))
	ok, err := x.store.Retry(x.ctx, e, tries, next, reason)
	if err != nil {
		x.broken(l, err)
		return
	}
	x.note(func(r *Report) {
		r.Failed++
		r.problem("%s: %s", e.Destination, reason)
	})
	e.Tries, e.NextTry, e.State = tries, next, Retrying
	switch {
	case e.OrderingKey == "":
		l.entries = nil // the sweep takes it up when it is due
	case !ok || !x.wait:
		l.stopped = true
	default:
		l.notBefore = next
	}
}

func (x *run) park(l *lane, now time.Time, tries int, reason string) {
	e := l.entries[0]
	ok, err := x.store.Park(x.ctx, now, e, tries, reason)
	if err != nil {
		x.broken(l, err)
		return
	}
	x.done(l, func(r *Report) {
		if ok {
			r.Parked++
			r.problem("%s: parked: %s", e.Destination, reason)
		}
	})
}

// done takes the first message from its lane.
func (x *run) done(l *lane, count func(*Report)) {
	l.entries = l.entries[1:]
	l.notBefore = time.Time{}
	x.note(count)
	if len(l.entries) > 0 && l.entries[0].NextTry.After(time.Now()) {
		l.notBefore = l.entries[0].NextTry
		l.stopped = !x.wait
	}
}

// broken ends a lane whose first message could not be noted.
func (x *run) broken(l *lane, err error) {
	x.note(func(r *Report) { r.problem("%v", err) })
	l.stopped = true
}

func (x *run) note(f func(*Report)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.report)
}

// cut makes of a reason what an item can and should hold.
func cut(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason]
	}
	return strings.ToValidUTF8(s, "?")
}
