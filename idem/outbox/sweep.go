package outbox

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// readers is how many destinations' sweeps read a page at a time: replies take several times the memory
// of the messages in them.
const readers = 4

// Sweep sends messages that the stream has missed or left to it: all waiting messages older
// than [Options.Grace], and younger ones with an ordering key that the stream has left.
// Destinations are swept side by side, each shard by shard: first what was left in an order, at
// most [MaxHeld] messages of each ordering key in turn, then the oldest messages first.
// Among messages with the same destination and ordering key, those that were left earlier
// are sent first.
//
// A destination that is down gets nothing more in this sweep. No destination waits for
// another one, and none reads another one's messages. Sweep returns when it has seen all
// messages or when time is up, see [Report.More]. The relay's next sweep then continues from
// there. The error joins those of shards that could not be read.
func (r *Relay) Sweep(ctx context.Context) (Report, error) {
	s := &sweep{
		run: r.begin(ctx, false), before: time.Now().Add(-r.opts.Grace),
		size: memory / (len(r.senders) + 1), reading: make(chan struct{}, readers), failed: map[string]error{},
		known: slices.Collect(maps.Keys(r.senders)),
	}
	// The last pass is for destinations that the relay does not know.
	var g sync.WaitGroup
	for _, name := range append(slices.Clone(s.known), "") {
		g.Go(func() { s.destination(name) })
	}
	g.Wait()
	return s.report, errors.Join(slices.Collect(maps.Values(s.failed))...)
}

// sweep is one call of Sweep.
type sweep struct {
	*run
	before  time.Time
	known   []string // destinations
	size    int      // of what a pass reads at a time, and of what goes before that in its order
	reading chan struct{}
	failed  map[string]error // by text
}

// pass is one destination's iteration over the shards. It may take several sweeps.
type pass struct {
	shard  int
	cursor string // behind refs
	refs   []Ref  // the rest of the page
	// held are lanes whose first messages were read before and still wait.
	held map[Lane]bool
	// sent: messages in an order were sent, and more may wait behind them.
	sent bool
}

// pass takes the destination's pass. Another sweep at the same time has its own.
func (r *Relay) pass(destination string) *pass {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.passes[destination]
	delete(r.passes, destination)
	if p == nil {
		// If each sweep has a process of its own, they should not all begin with the same
		// shard.
		p = &pass{shard: rand.IntN(Shards), held: map[Lane]bool{}}
	}
	return p
}

func (r *Relay) keep(destination string, p *pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passes[destination] = p
}

func (s *sweep) destination(name string) {
	p := s.pass(name)
	defer s.keep(name, p)
	shards := Shards
	if p.cursor != "" || len(p.refs) > 0 {
		shards++ // this shard's beginning comes last
	}
	for shards > 0 && !s.isDown(name) {
		if s.over(time.Now()) {
			s.note(func(r *Report) { r.More = true })
			return
		}
		p.sent = s.send(s.read(name, p), p.held) || p.sent
		if p.cursor != "" || len(p.refs) > 0 {
			continue
		}
		if shards--; p.sent {
			shards = Shards // this one comes once more, after the others
		}
		p.shard, p.held, p.sent = (p.shard+1)%Shards, map[Lane]bool{}, false
	}
}

// read reads the destination's next messages in a pass. It skips a shard that cannot be read.
func (s *sweep) read(name string, p *pass) (entries []*Entry) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	var err error
	switch {
	case len(p.refs) > 0:
	case name == "":
		p.refs, p.cursor, err = s.store.Strays(s.ctx, p.shard, s.known, s.before, p.cursor)
	default:
		p.refs, p.cursor, err = s.store.Waiting(s.ctx, p.shard, name, s.before, p.cursor)
	}
	var found map[Ref]*Entry
	var n int
	if len(p.refs) > 0 && err == nil {
		found, n, err = s.store.Load(s.ctx, p.refs, s.size)
	}
	if err != nil {
		s.trouble(err)
		p.refs, p.cursor = nil, ""
		return nil
	}
	for _, ref := range p.refs[:n] {
		if e := found[ref]; e != nil {
			entries = append(entries, e)
		}
	}
	p.refs = p.refs[n:]
	return entries
}

func (s *sweep) trouble(err error) {
	s.note(func(r *Report) {
		r.More = true
		r.problem("%v", err)
		s.failed[err.Error()] = err
	})
}

// send sends what a pass has read, and reports whether it has sent what was read of an order.
func (s *sweep) send(entries []*Entry, held map[Lane]bool) (sent bool) {
	p := newPlan()
	var before []Ref
	var lanes []Lane
	s.age(entries)
	for _, e := range entries {
		p.found[e.Ref()] = e
		if e.OrderingKey == "" || held[e.lane()] {
			continue // no order, or it is left: nothing is read for it
		}
		before = append(before, e.before()...)
		if e.State == New {
			lanes = append(lanes, e.lane())
		}
	}
	// Messages that go first may have been left since the pass read their place. An earlier message of
	// the same record may come later in the pass if it was never left.
	err := s.loadHeld(s.ctx, p, lanes, before, s.size)
	if err != nil {
		s.trouble(err)
	}
	now := time.Now()
	for _, e := range entries {
		ordered := e.OrderingKey != ""
		switch {
		case e.Unreadable != nil:
			s.note(func(r *Report) {
				r.Unreadable++
				r.problem("%v", e.Unreadable)
			})
			held[e.lane()] = ordered
		case !e.pending() || ordered && held[e.lane()]:
			s.note(func(r *Report) { r.Skipped++ })
		case ordered && err != nil:
			held[e.lane()] = true
			s.note(func(r *Report) { r.Left++ })
		case e.NextTry.After(now) && (!ordered || p.byLane[e.lane()] == nil):
			s.note(func(r *Report) { r.Skipped++ })
			held[e.lane()] = ordered
		default:
			p.add(e)
		}
	}
	s.all(p.lanes)
	for key, l := range p.byLane {
		if len(l.entries) > 0 {
			held[key] = true
		} else {
			sent = true
		}
	}
	return sent
}

// age notes when the oldest of the entries was committed. An unreadable one does not say.
func (s *sweep) age(entries []*Entry) {
	s.note(func(r *Report) {
		for _, e := range entries {
			if !e.Created.IsZero() && (r.OldestAt.IsZero() || e.Created.Before(r.OldestAt)) {
				r.OldestAt = e.Created
			}
		}
	})
}
