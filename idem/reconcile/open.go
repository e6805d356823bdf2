package reconcile

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
)

// Open says how many questions are open.
type Open struct {
	// Operation that they belong to; empty for all of them together.
	Operation string
	// Count is how many they are.
	Count int
	// Oldest is since when the oldest one is open; zero if there is none.
	Oldest time.Time

	read time.Time
}

// Counts has them as metrics, by the names of package schema.
func (o Open) Counts() iter.Seq2[string, int] {
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
// had one in an earlier call and have none now, so that their gauges go back to 0. Like [Reconciler.List] it reads each
// record that the index names, a unit of capacity for each 4 KB. With an error the
// answers are about those that it had read by then.
func (r *Reconciler) OpenQuestions(ctx context.Context) ([]Open, error) {
	now := r.now()
	all := Open{read: now}
	by := map[string]Open{}
	var failed error
	for page, more := "", true; more; more = page != "" {
		l, err := r.List(ctx, Filter{Limit: maxRead}, page)
		if err != nil {
			failed = err
			break
		}
		for _, rec := range l.Records {
			if rec.State == idem.InProgress && !now.After(rec.LeaseUntil.Add(r.opts.Margin)) {
				continue
			}
			_, name := namesOf(rec.ID)
			at := since(rec)
			o := by[name]
			o.add(at)
			by[name] = o
			all.add(at)
		}
		page = l.Next
	}
	answers := []Open{all}
	for _, name := range r.operations(by, failed == nil) {
		o := by[name]
		o.Operation, o.read = name, now
		answers = append(answers, o)
	}
	return answers, failed
}

// operations are the names of those that have open questions, and if all were counted, also of
// those that had some.
func (r *Reconciler) operations(by map[string]Open, all bool) []string {
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

func (o *Open) add(since time.Time) {
	o.Count++
	if o.Oldest.IsZero() || since.Before(o.Oldest) {
		o.Oldest = since
	}
}
