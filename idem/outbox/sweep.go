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
	s := r.sweep(r.begin(ctx, false))
	var g sync.WaitGroup
	for _, name := range s.passes() {
		g.Go(func() { s.destination(name) })
	}
	g.Wait()
	return s.report, s.err()
}

// Poll is for a store without a stream, such as pgstore's. Every so often it sweeps each destination, and sends all
// that waits, however young it is. It returns when the context has ended, or when that is about to reach its deadline.
// No destination waits for another one. One that is down is looked at every 10 s, and after an error Poll waits for
// 10 s, too.
//
// Messages for destinations that the relay does not know may be another program's: Poll leaves them as they are.
// Every 10 s it looks whether some are older than [Options.Grace], and reports those as deferred.
//
// What it sends does not use Grace: each try is noted before it is made. Unless [Options.MaxTries] says otherwise,
// 30 tries of a message may fail, which take at least 45 minutes.
//
// report, if not nil, gets the report and the error of each such sweep. It is called by one goroutine at a time.
func (r *Relay) Poll(ctx context.Context, every time.Duration, report func(Report, error)) {
	var g sync.WaitGroup
	var mu sync.Mutex
	for _, name := range r.sweep(nil).passes() {
		g.Go(func() {
			for {
				x := r.begin(ctx, false)
				x.polls = true
				s := r.sweep(x)
				s.destination(name)
				err := s.err()
				if report != nil {
					mu.Lock()
					report(s.report, err)
					mu.Unlock()
				}
				wait := every
				if name == "" || err != nil || s.isDown(name) {
					wait = max(every, pause)
				}
				if !sleep(ctx, wait) {
					return
				}
			}
		})
	}
	g.Wait()
}

// sleep reports whether the context has time left after it.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d+margin {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (r *Relay) sweep(x *run) *sweep {
	s := &sweep{
		run: x, before: time.Now().Add(-r.opts.Grace), size: memory / (len(r.senders) + 1), failed: map[string]error{},
		known: slices.Collect(maps.Keys(r.senders)),
	}
	if x != nil && x.polls {
		s.before = time.Now()
	}
	return s
}

// passes are the destinations that a sweep looks at. The last one is for those that the relay does not know.
func (s *sweep) passes() []string { return append(slices.Clone(s.known), "") }

func (s *sweep) err() error { return errors.Join(slices.Collect(maps.Values(s.failed))...) }

// sweep is one call of Sweep.
type sweep struct {
	*run
	before time.Time
	known  []string         // destinations
	size   int              // of what a pass reads at a time, and of what goes before that in its order
	failed map[string]error // by text
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
		p.refs, p.cursor, err = s.store.Strays(s.ctx, p.shard, s.passed(), s.begun.Add(-s.opts.Grace), p.cursor)
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
