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
// It reads what the index names, a unit of capacity for each 4 KB of a record, except for watched claims
// whose lease is not over. What it has read
// in an earlier call and has not changed since, it does not read again: unknown outcomes of
// operations that are not repeatable and have no steps. All shards are read side by side.
//
// With an error, which is one shard's, the answers are about those that it had read by then, and
// those that it had counted in an earlier call and did not come to; some may be settled since.
// There may be more, and older ones. The next call gets further. It remembers up to 32,768
// questions.
func (r *Reconciler) OpenQuestions(ctx context.Context) ([]OpenCount, error) {
	c := &counting{r: r, all: OpenCount{read: r.now()}, by: map[string]OpenCount{}, reading: make(chan struct{}, readers)}
	var g sync.WaitGroup
	for shard := range protocol.Shards {
		g.Go(func() { c.shard(ctx, shard) })
	}
	g.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range c.by {
		r.counted[name] = true
	}
	names := slices.Sorted(maps.Keys(r.counted))
	if c.failed != nil { // of others it is not known that they have none
		names = slices.Sorted(maps.Keys(c.by))
	}
	answers := []OpenCount{c.all}
	for _, name := range names {
		o := c.by[name]
		o.Operation, o.read = name, c.all.read
		answers = append(answers, o)
	}
	return answers, c.failed
}

// counting is one call of OpenQuestions.
type counting struct {
	r       *Reconciler
	reading chan struct{} // an element for each read under way

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

// shard counts what a shard of the index names. If that cannot be read, what was known of the shard and
// the call did not come to counts still: an alarm about an old question must not end.
func (c *counting) shard(ctx context.Context, shard int) {
	c.r.mu.Lock()
	m := memory{before: c.r.known[shard], now: map[string]known{}, met: map[string]bool{}}
	c.r.mu.Unlock()
	if err := c.pages(ctx, shard, m); err != nil {
		c.mu.Lock()
		c.failed = err
		c.mu.Unlock()
		for id, k := range m.before {
			if !m.met[id] {
				c.meet(id, m, &k)
			}
		}
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.known[shard] = m.now
}

func (c *counting) pages(ctx context.Context, shard int, m memory) error {
	until := never
	if shard >= protocol.QuestionShards { // a claim before it is due is no question
		until = c.all.read
	}
	for page, more := "", true; more; more = page != "" {
		c.reading <- struct{}{}
		due, err := c.r.store.Due(ctx, protocol.DueQuery{Shard: shard, Until: until, Page: page, Limit: maxRead})
		<-c.reading
		if err != nil {
			return err
		}
		g, reading := errgroup.WithContext(ctx)
		g.SetLimit(readers)
		for i, id := range due.IDs {
			if k, ok := m.before[id]; ok && k.sure && i < len(due.Due) && k.due.Equal(due.Due[i]) {
				c.meet(id, m, &k)
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

// read counts the record if it is an open question.
func (c *counting) read(ctx context.Context, id string, m memory) error {
	c.reading <- struct{}{}
	defer func() { <-c.reading }()
	rec, err := c.r.store.Get(ctx, id)
	switch {
	case err != nil && !errors.Is(err, protocol.ErrRecordUnreadable):
		return err
	case err != nil, rec == nil, rec.Due.IsZero(), // the index is late
		rec.State == idem.InProgress && !c.all.read.After(rec.LeaseUntil.Add(c.r.opts.Margin)):
		c.meet(id, m, nil)
		return nil
	}
	// A call may take over a repeatable operation, and one with steps, at its place in the index.
	sure := rec.State == idem.Unknown && rec.Repeat == idem.NotRepeatable && len(rec.Steps) == 0
	c.meet(id, m, &known{rec.Due, since(rec), sure})
	return nil
}

// meet notes that the call has come to a record. If it is an open question, it is counted, and kept among the
// known ones.
func (c *counting) meet(id string, m memory, k *known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, was := m.before[id]; was {
		m.met[id] = true
	}
	if k == nil {
		return
	}
	if len(m.now) < maxKnown {
		m.now[id] = *k
	}
	_, name := namesOf(id)
	o := c.by[name]
	o.add(k.since)
	c.by[name] = o
	c.all.add(k.since)
}

func (o *OpenCount) add(since time.Time) {
	o.Count++
	if o.Oldest.IsZero() || since.Before(o.Oldest) {
		o.Oldest = since
	}
}
