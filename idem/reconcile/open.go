package reconcile

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// OpenCount says how many questions are open.
type OpenCount struct {
	// Operation that they belong to; empty for all of them together.
	Operation string
	// Count is how many they are.
	Count int
	// Oldest is since when the oldest one is open; zero if there is none.
	Oldest time.Time

	read time.Time
}

// Counts has them as metrics, by the names of package schema.
func (o OpenCount) Counts() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		age := time.Duration(0)
		if !o.Oldest.IsZero() {
			age = max(o.read.Sub(o.Oldest), 0)
		}
		_ = yield(schema.MetricOpen, o.Count) && yield(schema.MetricOldestOpen, int(age/time.Second))
	}
}

// OpenQuestions counts what is open: unknown and accepted operations, claims whose lease has
// lapsed, and released operations with steps. The first of the answers is about all of them,
// the others are about an operation each, by name: those with an open question, and those that
// had one in an earlier call and have none now, so that their gauges go back to 0.
//
// It reads what the index names, a unit of capacity for each 4 KB of a record. What it has read
// in an earlier call and has not changed since, it does not read again: unknown outcomes of
// operations that are not repeatable and have no steps. All shards are read side by side.
//
// With an error, which is one shard's, the answers are about those that it had read by then, and
// those that it had counted in an earlier call and did not come to, some of which may be settled
// since. There may be more, and older ones. The next call gets further. It remembers up to 32,768
// questions.
func (r *Reconciler) OpenQuestions(ctx context.Context) ([]OpenCount, error) {
	c := &counting{r: r, all: OpenCount{read: r.now()}, by: map[string]OpenCount{}, reading: make(chan struct{}, readers)}
	var g sync.WaitGroup
	for shard := range protocol.Shards {
		g.Go(func() {
			if err := c.shard(ctx, shard); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.failed = err
			}
		})
	}
	g.Wait()
	answers := []OpenCount{c.all}
	for _, name := range r.operations(c.by, c.failed == nil) {
		o := c.by[name]
		o.Operation, o.read = name, c.all.read
		answers = append(answers, o)
	}
	return answers, c.failed
}

// counting is one call of OpenQuestions.
type counting struct {
	r       *Reconciler
	reading chan struct{} // a place for each that reads, in turn

	mu     sync.Mutex
	all    OpenCount
	by     map[string]OpenCount
	failed error
}

// known is an open question that was counted before. If it is sure, it is the same question as
// long as the index has it at the same due time. Any other one has to be read again.
type known struct {
	due, since time.Time
	sure       bool
}

// maxKnown bounds the memory for a shard's known questions.
const maxKnown = 2048

// memory is a shard's known questions: those of before the call, which stay as they are, which of
// them the call has come to, and those for the next call.
type memory struct {
	before, now map[string]known
	met         map[string]bool
}

// isSure reports whether an open record leaves its place in the index before it is anything
// else. A call may take over a repeatable operation, and one with steps, at its place.
func isSure(rec *idem.Record) bool {
	return rec.State == idem.Unknown && rec.Repeat == idem.NotRepeatable && len(rec.Steps) == 0
}

// shard counts what a shard of the index names, and what was known of it and it does not come
// to: an alarm about an old question does not end because its shard cannot be read.
func (c *counting) shard(ctx context.Context, shard int) error {
	c.r.mu.Lock()
	m := memory{before: c.r.known[shard], now: map[string]known{}, met: map[string]bool{}}
	c.r.mu.Unlock()
	err := c.pages(ctx, shard, m)
	if err != nil {
		for id, k := range m.before {
			if !m.met[id] {
				c.add(id, k, m)
			}
		}
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.known[shard] = m.now
	return err
}

func (c *counting) pages(ctx context.Context, shard int, m memory) error {
	for page, more := "", true; more; more = page != "" {
		c.reading <- struct{}{}
		due, err := c.r.store.Due(ctx, protocol.DueQuery{Shard: shard, Until: never, Page: page, Limit: maxRead})
		<-c.reading
		if err != nil {
			return err
		}
		g, reading := errgroup.WithContext(ctx)
		g.SetLimit(readers)
		for i, id := range due.IDs {
			if k, ok := m.before[id]; ok && k.sure && i < len(due.Due) && k.due.Equal(due.Due[i]) {
				c.meet(id, m)
				c.add(id, k, m)
				continue
			}
			g.Go(func() error { return c.read(reading, id, m) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		page = due.Next
	}
	return nil
}

// meet notes that the call has come to a known question, whatever has become of it.
func (c *counting) meet(id string, m memory) {
	if _, was := m.before[id]; was {
		c.mu.Lock()
		defer c.mu.Unlock()
		m.met[id] = true
	}
}

// read counts the record if it is an open question.
func (c *counting) read(ctx context.Context, id string, m memory) error {
	c.reading <- struct{}{}
	defer func() { <-c.reading }()
	rec, err := c.r.store.Get(ctx, id)
	unreadable := errors.Is(err, protocol.ErrRecordUnreadable)
	if err != nil && !unreadable {
		return err
	}
	c.meet(id, m)
	switch {
	case unreadable:
		return nil
	case rec == nil || rec.Due.IsZero():
		return nil // the index is late
	case rec.State == idem.InProgress && !c.all.read.After(rec.LeaseUntil.Add(c.r.opts.Margin)):
		return nil
	}
	c.add(id, known{rec.Due, since(rec), isSure(rec)}, m)
	return nil
}

// add counts a question, and keeps it among the known ones.
func (c *counting) add(id string, k known, m memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(m.now) < maxKnown {
		m.now[id] = k
	}
	_, name := namesOf(id)
	o := c.by[name]
	o.add(k.since)
	c.by[name] = o
	c.all.add(k.since)
}

// operations are the names of those that have open questions, and if all were counted, also of
// those that had some.
func (r *Reconciler) operations(by map[string]OpenCount, all bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range by {
		r.counted[name] = true
	}
	if !all {
		return slices.Sorted(maps.Keys(by))
	}
	return slices.Sorted(maps.Keys(r.counted))
}

func (o *OpenCount) add(since time.Time) {
	o.Count++
	if o.Oldest.IsZero() || since.Before(o.Oldest) {
		o.Oldest = since
	}
}
