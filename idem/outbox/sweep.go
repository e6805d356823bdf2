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
// most [MaxHeld] messages of each ordering key, then the oldest messages first. Then the orders of
// which more waits take turns. A sweep tries no message twice.
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
	// orders has what was read of each lane in this shard, of messages that were left to the sweep.
	orders map[Lane]*order
	// long has lanes that may have more messages: for each of them the last message that was read. Those before it are
	// sent.
	long []*Entry
}

// order is what was read of a lane.
type order struct {
	lane    Lane
	n       int
	last    *Entry // without its body
	through bool   // what was read last was sent
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
		p = &pass{}
		p.begin(rand.IntN(Shards))
	}
	return p
}

func (r *Relay) keep(destination string, p *pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.long, p.orders = nil, map[Lane]*order{} // the next sweep begins with the first of them
	r.passes[destination] = p
}

func (s *sweep) destination(name string) {
	p := s.pass(name)
	defer s.keep(name, p)
	shards := Shards
	if p.cursor != "" || len(p.refs) > 0 {
		shards++ // this shard's beginning comes last
	}
	for (shards > 0 || len(p.long) > 0) && !s.isDown(name) {
		switch {
		case s.over(time.Now()):
			s.note(func(r *Report) { r.More = true })
			return
		case shards == 0:
			s.goOn(p)
			continue
		}
		s.send(s.read(name, p), p)
		if p.cursor == "" && len(p.refs) == 0 {
			p.end()
			shards--
		}
	}
}

// begin begins with a shard.
func (p *pass) begin(shard int) {
	p.shard, p.held, p.orders = shard, map[Lane]bool{}, map[Lane]*order{}
}

// end goes to the next shard, and notes the lanes that may have more messages.
func (p *pass) end() {
	for _, o := range p.orders {
		if o.n >= MaxHeld && p.goesOn(o) {
			p.long = append(p.long, o.last)
		}
	}
	p.begin((p.shard + 1) % Shards)
}

// goesOn reports whether what comes next in a lane can be sent.
func (p *pass) goesOn(o *order) bool { return o.through || !p.held[o.lane] }

// goOn sends the next messages of the first of the long lanes, which come last then if they may have more.
func (s *sweep) goOn(p *pass) {
	lanes := p.long[:min(chunk, len(p.long))]
	p.long = p.long[len(lanes):]
	defer p.begin(p.shard)
	listed, read, entries, err := s.readOn(lanes)
	if err != nil {
		s.trouble(err)
		return
	}
	s.send(entries, p)
	var first []*Entry
	for i, l := range lanes {
		o := p.orders[l.lane()]
		switch {
		case listed[i] > 0 && read[i] == 0:
			first = append(first, l) // there was no memory for any of it
		case o != nil && p.goesOn(o) && (listed[i] >= MaxHeld || read[i] < listed[i]):
			p.long = append(p.long, o.last)
		}
	}
	p.long = append(first, p.long...)
}

// readOn reads what comes after these messages in their lanes. It returns how many messages were listed of each lane,
// and how many of those were read. A lane is not read from its beginning, since the index may still list what was sent.
func (s *sweep) readOn(lanes []*Entry) (listed, read []int, entries []*Entry, err error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	next, errs := make([][]Ref, len(lanes)), make([]error, len(lanes))
	each(len(lanes), func(i int) { next[i], errs[i] = s.store.HeldAfter(s.ctx, lanes[i]) })
	refs := slices.Concat(next...)
	if err = errors.Join(errs...); err != nil || len(refs) == 0 {
		return make([]int, len(lanes)), make([]int, len(lanes)), nil, err
	}
	found, n, err := s.store.Load(s.ctx, refs, s.size)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, ref := range refs[:n] {
		if e := found[ref]; e != nil {
			entries = append(entries, e)
		}
	}
	for _, of := range next {
		listed = append(listed, len(of))
		read = append(read, min(n, len(of)))
		n -= min(n, len(of))
	}
	return listed, read, entries, nil
}

// read reads the destination's next messages in a pass. It skips a shard that cannot be read.
func (s *sweep) read(name string, p *pass) (entries []*Entry) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	var err error
	switch {
	case len(p.refs) > 0:
	case name == "":
		p.refs, p.cursor, err = s.store.Strays(s.ctx, p.shard, s.passed(), s.before, p.cursor)
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

// passed are the destinations that the pass for unknown ones leaves out: those that are known, and those that have
// failed in this sweep.
func (s *sweep) passed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.known)
	for name, failures := range s.run.failed {
		if failures >= giveUp && s.senders[name] == nil {
			all = append(all, name)
		}
	}
	return all
}

// send sends what a pass has read.
func (s *sweep) send(entries []*Entry, of *pass) {
	p, held := newPlan(), of.held
	var before []Ref
	var lanes []Lane
	s.age(entries)
	for _, e := range entries {
		p.found[e.Ref()] = e
		of.saw(e)
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
		case !s.isDue(e) && (!ordered || p.byLane[e.lane()] == nil):
			s.note(func(r *Report) { r.Skipped++ })
			held[e.lane()] = ordered
		default:
			p.add(e)
		}
	}
	s.all(p.lanes)
	for key, l := range p.byLane {
		held[key] = len(l.entries) > 0
		if o := of.orders[key]; o != nil {
			o.through = l.through
		}
	}
}

// saw notes a message that was left to the sweep in an order.
func (p *pass) saw(e *Entry) {
	if e.OrderingKey == "" || e.State == New {
		return
	}
	o := p.orders[e.lane()]
	if o == nil {
		o = &order{lane: e.lane()}
		p.orders[o.lane] = o
	}
	last := *e
	last.Body, last.Attributes = nil, nil
	o.n, o.last = o.n+1, &last
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
