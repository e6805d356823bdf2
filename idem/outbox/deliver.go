package outbox

import (
	"context"
	"math"
	"slices"
	"time"
)

// Deliver sends the messages that the table's stream has delivered; refs are in the
// stream's order. It returns the index of the first ref that the stream must deliver again,
// or the number of refs if there is none. The relay has sent the other messages, given them
// up, or left them to the sweep.
//
// A message that fails is left to the sweep, so that it does not hold up others. Messages
// behind it with its destination and ordering key are left to the sweep without a try. The
// same applies to all messages of a destination that is down or has kept the others waiting
// for too long ([Options.Patience]). Before it sends a message with an ordering key, Deliver
// sends the earlier messages of the key that were left to the sweep. Messages of one record
// are sent in the order in which they were published, whatever the order of refs.
//
// The stream must deliver again the messages for which there was no time, and those whose
// result could not be noted. After an error nothing could be read, and everything must be
// delivered again.
func (r *Relay) Deliver(ctx context.Context, refs []Ref) (Report, int, error) {
	p := newPlan()
	if err := r.load(ctx, p, refs); err != nil {
		return Report{Left: len(refs)}, 0, err
	}
	x := r.begin(ctx, true)
	for d := range p.rested {
		// Even if its rest is over by now: the messages left before were not read.
		x.failed[d] = giveUp
	}
	now := time.Now()
	for _, ref := range refs {
		e := p.found[ref]
		switch {
		case e != nil && e.Unreadable != nil:
			x.report.Unreadable++
			x.report.problem("%v", e.Unreadable)
			if e.OrderingKey != "" {
				p.lane(e).stopped = true // what is behind it waits
			}
		case e == nil || !e.pending():
			x.report.Skipped++ // sent and deleted, or a dead letter
		case e.OrderingKey == "" && e.NextTry.After(now):
			x.report.Skipped++ // left to the sweep
		default:
			p.add(e)
		}
	}
	p.lanes = slices.DeleteFunc(p.lanes, func(l *lane) bool { return len(l.entries)+len(l.behind) == 0 })
	x.all(p.lanes)
	first := slices.IndexFunc(refs, func(ref Ref) bool { return x.again[p.found[ref]] })
	if first < 0 {
		first = len(refs)
	}
	return x.report, first, nil
}

// load reads the messages. For those with an ordering key it also reads the messages that
// go before them: those that their records published earlier, since a batch may end between
// two, and those that were left to the sweep.
func (r *Relay) load(ctx context.Context, p *plan, refs []Ref) (err error) {
	// The messages are in the stream's event, which Lambda limits to 6 MB.
	if p.found, _, err = r.store.Load(ctx, distinct(refs), math.MaxInt); err != nil {
		return err
	}
	var before []Ref
	var lanes []Lane
	for _, ref := range refs {
		e := p.found[ref]
		if e == nil || !e.pending() || e.OrderingKey == "" {
			continue
		}
		if p.rested[e.Destination] || r.rests(e.Destination) {
			p.rested[e.Destination] = true
		} else {
			lanes = append(lanes, e.lane())
		}
		before = append(before, e.before()...)
	}
	return r.loadHeld(ctx, p, lanes, before, memory)
}

// loadHeld reads what the sweep was left of the lanes, with what goes before that, and those of the other
// messages that the plan does not know. It reads as many as fit into size bytes; the lanes of the others wait for
// them.
func (r *Relay) loadHeld(ctx context.Context, p *plan, lanes []Lane, refs []Ref, size int) (err error) {
	lanes = distinct(lanes)
	if len(lanes) > 0 {
		if p.held, err = r.store.Held(ctx, lanes); err != nil {
			return err
		}
	}
	for n := range MaxHeld { // the first of each lane, then the second: none takes up the memory alone
		for _, l := range lanes {
			if held := p.held[l]; n < len(held) {
				refs = append(refs, held[n])
			}
		}
	}
	known := func(ref Ref) bool { return p.found[ref] != nil }
	refs = slices.DeleteFunc(distinct(refs), known)
	for len(refs) > 0 && size > 0 {
		more, n, err := r.store.Load(ctx, refs, size)
		if err != nil {
			return err
		}
		for ref, e := range more {
			if p.found[ref] = e; e.pending() {
				size -= e.Size()
			} else {
				e.Body, e.Attributes = nil, nil // it is not sent
			}
		}
		for _, ref := range refs[:n] {
			// A message may have been left to the sweep without those of its record that go before it.
			if e := more[ref]; e != nil && e.pending() {
				refs = append(refs, e.before()...)
			}
		}
		refs = slices.DeleteFunc(distinct(refs[n:]), known)
	}
	for _, ref := range refs {
		p.unread[ref] = true
	}
	return nil
}

// before returns the messages that the entry's record has published before it in the same
// order.
func (e *Entry) before() (refs []Ref) {
	for _, id := range e.After {
		refs = append(refs, Ref{e.Record, id})
	}
	return refs
}

func distinct[T comparable](all []T) []T {
	seen := make(map[T]bool, len(all))
	var list []T
	for _, v := range all {
		if !seen[v] {
			seen[v] = true
			list = append(list, v)
		}
	}
	return list
}

// plan puts messages into lanes.
type plan struct {
	found  map[Ref]*Entry
	held   map[Lane][]Ref
	unread map[Ref]bool // there was no memory for them
	added  map[*Entry]bool
	byLane map[Lane]*lane
	lanes  []*lane
	rested map[string]bool // destinations to which the stream sends nothing for now
}

func newPlan() *plan {
	return &plan{
		found: map[Ref]*Entry{}, unread: map[Ref]bool{}, added: map[*Entry]bool{}, byLane: map[Lane]*lane{},
		rested: map[string]bool{},
	}
}

func (p *plan) add(e *Entry) {
	if e.OrderingKey != "" {
		p.place(p.lane(e), e)
		return
	}
	if !p.added[e] {
		p.added[e] = true
		p.lanes = append(p.lanes, &lane{entries: []*Entry{e}})
	}
}

// place adds an entry to its lane, behind those of its record that come before it.
func (p *plan) place(l *lane, e *Entry) {
	if p.added[e] {
		return
	}
	p.added[e] = true
	p.placeFirst(l, e.before(), e.lane())
	l.add(e)
}

// placeFirst adds to the lane those of the messages that are in it and wait. One that cannot be read
// stops it. What is behind one that was not read waits for another run.
func (p *plan) placeFirst(l *lane, refs []Ref, name Lane) {
	for _, ref := range refs {
		e := p.found[ref]
		switch {
		case p.unread[ref]:
			l.full = true
		case e == nil || e.lane() != name:
		case e.Unreadable != nil:
			l.stopped = true
		case e.pending():
			p.place(l, e)
		}
	}
}

// lane returns the lane of an entry, which begins with the messages left to the sweep.
func (p *plan) lane(e *Entry) *lane {
	l := p.byLane[e.lane()]
	if l != nil {
		return l
	}
	l = &lane{}
	p.byLane[e.lane()] = l
	p.lanes = append(p.lanes, l)
	held := p.held[e.lane()]
	p.placeFirst(l, held, e.lane())
	l.full = l.full || len(held) >= MaxHeld
	return l
}
