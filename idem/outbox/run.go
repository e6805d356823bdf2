package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// chunk is how many messages a call of a sender gets: one request, if they are
	// small, so that all are sent in the time that the call has.
	chunk = 10
	// giveUp is the sum of failures in a row after which a run sends nothing more to the destination. Two calls
	// that fail as a whole reach it: one may be a single message's fault.
	giveUp = 2 * failure
	// failure is what a call counts that fails as a whole. A call with one suspect counts 1 if the destination
	// has taken other messages in the run: the message is probably at fault.
	failure = 5
)

// run is one call of a relay. Destinations run side by side and do not wait for each other.
type run struct {
	*Relay
	ctx    context.Context
	begun  time.Time
	end    time.Time // nothing is sent later; zero for no end
	stream bool      // the next records of the stream wait for this run
	polls  bool      // there is no stream

	mu     sync.Mutex
	report Report
	again  map[*Entry]bool // messages that the stream must deliver again
	failed map[string]int  // destinations' failures in a row
	works  map[string]bool // destinations that have taken a message
}

func (r *Relay) begin(ctx context.Context, stream bool) *run {
	x := &run{Relay: r, ctx: ctx, begun: time.Now(), stream: stream, again: map[*Entry]bool{},
		failed: map[string]int{}, works: map[string]bool{}}
	if deadline, ok := ctx.Deadline(); ok {
		x.end = deadline.Add(-min(margin, time.Until(deadline)/4))
	}
	return x
}

// over reports whether there is no time to send anything at t.
func (x *run) over(t time.Time) bool {
	return x.ctx.Err() != nil || !x.end.IsZero() && !t.Before(x.end)
}

// isDown reports whether the run sends nothing more to the destination.
func (x *run) isDown(destination string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failed[destination] >= giveUp || x.stream && x.rests(destination)
}

// all sends as many of the lanes' messages as it can.
func (x *run) all(lanes []*lane) {
	byDestination := map[string][]*lane{}
	for _, l := range lanes {
		d := slices.Concat(l.entries, l.behind)[0].Destination
		byDestination[d] = append(byDestination[d], l)
	}
	var g sync.WaitGroup
	for d, lanes := range byDestination {
		g.Go(func() { x.destination(d, lanes) })
	}
	g.Wait()
}

// destination sends the lanes of one destination, a chunk of first messages at a time. The
// lanes take turns. Messages that have failed come last: they may fail again.
func (x *run) destination(name string, lanes []*lane) {
	tries := func(l *lane) int {
		if len(l.entries) == 0 {
			return 0
		}
		return l.entries[0].Tries
	}
	turn := slices.SortedStableFunc(slices.Values(lanes), func(a, b *lane) int { return cmp.Compare(tries(a), tries(b)) })
	if x.polls && x.senders[name] == nil {
		x.note(func(r *Report) {
			x.failed[name] = giveUp
			r.problem("messages wait for destination %q, which the relay does not know: add its route, unless another "+
				"program sends them", name)
		})
	}
	for !x.over(time.Now()) && !x.isDown(name) {
		var next, later []*lane
		single := false
		for _, l := range turn {
			switch {
			case !x.goes(l):
			case len(next) == 0:
				next, single = append(next, l), x.suspect(l.entries[0])
			case len(next) < chunk && !single && !x.suspect(l.entries[0]):
				next = append(next, l)
			default:
				later = append(later, l)
			}
		}
		if len(next) == 0 {
			break
		}
		x.try(name, next)
		turn = append(later, next...)
	}
	for _, l := range lanes {
		x.leave(l)
	}
}

// isDue reports whether a message can be tried. A sweep tries none twice: what it has tried waits for the next sweep.
// A message without a try was left to it.
func (x *run) isDue(e *Entry) bool {
	at := time.Now()
	if !x.stream && e.Tries > 0 {
		at = x.begun
	}
	return !e.NextTry.After(at)
}

// suspect reports whether a message has used up half its tries. From then on it is sent in
// a request of its own, so that no message is given up because of another in its requests.
func (x *run) suspect(e *Entry) bool { return e.Tries > 0 && 2*e.Tries >= x.maxTries() }

func (x *run) maxTries() int {
	if x.polls {
		return cmp.Or(x.opts.MaxTries, pollTries)
	}
	return cmp.Or(x.opts.MaxTries, DefaultMaxTries)
}

// try tries the first message of each lane, all of one destination.
func (x *run) try(destination string, lanes []*lane) {
	alone := len(lanes) == 1 && x.suspect(lanes[0].entries[0])
	ready := make([]bool, len(lanes))
	each(len(lanes), func(i int) { ready[i] = x.announce(lanes[i]) })
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
	begun := time.Now()
	sent, late := x.send(destination, messages)
	took := time.Since(begun)
	each(len(trying), func(i int) { x.record(trying[i], sent[i]) })
	if x.over(begun.Add(took)) {
		return // cut short by the run's end, which says nothing about the destination
	}
	any, whole := false, true
	for _, s := range sent {
		failed := s.Err != nil && !errors.Is(s.Err, ErrRejected)
		any, whole = any || failed, whole && failed
	}
	late = late && any
	x.mu.Lock()
	defer x.mu.Unlock()
	alone = alone && x.works[destination]
	x.charge(destination, took, whole && !alone, late)
	switch {
	case late:
		x.failed[destination] = giveUp
	case whole && alone:
		x.failed[destination]++
	case whole:
		x.failed[destination] += failure
	default:
		x.failed[destination] = 0
		x.works[destination] = true
	}
}

// each calls f side by side.
func each(n int, f func(int)) {
	var g sync.WaitGroup
	for i := range n {
		g.Go(func() { f(i) })
	}
	g.Wait()
}

// send calls the destination's sender, and reports whether its time was over before it returned.
func (x *run) send(destination string, messages []Message) (sent []Sent, late bool) {
	sender := x.senders[destination]
	if sender == nil {
		return forEach(messages,
			fmt.Errorf("the relay knows no destination %q: add its route, and have the message sent again", destination)), false
	}
	ctx, cancel := context.WithTimeout(x.ctx, x.limit())
	defer cancel()
	if !x.end.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, x.end)
		defer stop()
	}
	if sent = sender.Send(ctx, messages); len(sent) != len(messages) {
		sent = forEach(messages, fmt.Errorf("the sender for %q returned %d results for %d messages", destination,
			len(sent), len(messages)))
	}
	return sent, ctx.Err() != nil
}

// limit is the time for a call of a sender.
func (x *run) limit() time.Duration {
	if x.stream {
		return min(sendTimeout, x.opts.Patience)
	}
	return sendTimeout
}

// noting is for the note of what became of a try. It has the run's deadline. It outlives by margin a run that is
// cancelled or over: what a service sends while it is stopped is noted.
func (x *run) noting() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.ctx))
	if end, ok := x.ctx.Deadline(); ok && time.Now().Before(end) {
		ctx, cancel = context.WithDeadline(ctx, end)
	}
	stop := context.AfterFunc(x.ctx, func() { time.AfterFunc(margin, cancel) })
	return ctx, func() { stop(); cancel() }
}

func (x *run) note(f func(*Report)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.report)
}
