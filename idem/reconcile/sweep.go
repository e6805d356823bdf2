package reconcile

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Sweep looks at all that is due now, once. It lists the shards of the index in turn, a page
// each, and begins with a random one. Each provider's questions have workers of their own,
// which begin with the one that has been due for longest. Sweep returns when it has seen
// all, or when the context's time is nearly over. The next sweep does what is left, and
// finishes what this one has left half done.
//
// Every write is conditional on what was read. If another write was faster, Sweep
// reads the record once more, and then leaves it to the next sweep. If three shards in a row
// cannot be listed, for example because the table does not exist, it stops listing. The
// error joins the errors of these shards, equal ones once. The report counts all other
// failures.
func (s *Sweeper) Sweep(ctx context.Context) (Report, error) {
	x := &sweep{Sweeper: s, ctx: ctx, asking: s.opts.ProbeTimeout, backlogs: map[string]chan string{},
		report: Report{DryRun: s.opts.DryRun}}
	listing := ctx
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		last := min(reserve, left/4)
		x.end = deadline.Add(-last)
		x.asking = min(x.asking, left/2)
		var cancel, stop context.CancelFunc
		// A store that hangs must not keep the report.
		x.ctx, cancel = context.WithDeadline(ctx, deadline.Add(-last/4))
		defer cancel()
		listing, stop = context.WithDeadline(ctx, x.end)
		defer stop()
	}
	err := x.list(listing)
	for _, due := range x.backlogs {
		close(due)
	}
	x.workers.Wait()
	err = errors.Join(err, x.expire(listing))
	return x.report, err
}

// sweep is one call of Sweep.
type sweep struct {
	*Sweeper
	ctx    context.Context
	end    time.Time     // nothing is begun later; zero for no end
	asking time.Duration // for a call of Probe, OnAbandoned and Escalate

	workers  sync.WaitGroup
	backlogs map[string]chan string // ids of what is due, by provider: the longest due first

	mu     sync.Mutex
	report Report
}

// over reports whether there is no time for something that takes d.
func (s *sweep) over(d time.Duration) bool {
	return s.ctx.Err() != nil || !s.end.IsZero() && time.Until(s.end) < d
}

// room is the time for a call that may be short.
func (s *sweep) room() time.Duration {
	if s.end.IsZero() {
		return s.asking
	}
	return min(s.asking, time.Until(s.end))
}

// maxUnlisted is how many shards in a row may fail until the store counts as down. A single
// one may have met a throttled partition.
const maxUnlisted = 3

// share is the context of one call of the store: a shard or a record that it throttles must
// not take the time of all others. Without a deadline the store has its own.
func (s *sweep) share(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, max(leastCall, min(s.asking, time.Until(deadline)/8)))
}

// leastCall is what a call of the store gets at least, as long as the sweep has it.
const leastCall = time.Second

// list leaves what is due to the workers. It does not wait for them: what is behind a slow
// provider's questions is listed too.
func (s *sweep) list(ctx context.Context) error {
	type place struct {
		shard int
		page  string
	}
	first := rand.IntN(protocol.Shards)
	turn := make([]place, protocol.Shards)
	for i := range turn {
		turn[i].shard = (first + i) % protocol.Shards
	}
	until := s.r.now()
	var failed error
	unlisted := 0
	for len(turn) > 0 {
		at := turn[0]
		turn = turn[1:]
		asking, cancel := s.share(ctx)
		page, err := s.r.store.Due(asking, protocol.DueQuery{Shard: at.shard, Until: until, Page: at.page, Limit: pageSize})
		cancel()
		switch {
		case ctx.Err() != nil:
			s.count(func(r *Report) { r.More = true })
			return failed
		case err != nil:
			s.count(func(r *Report) {
				if r.problem("%v", err) || failed == nil {
					failed = errors.Join(failed, err)
				}
			})
			if unlisted++; unlisted == maxUnlisted {
				s.count(func(r *Report) { r.More = r.More || len(turn) > 0 })
				return failed
			}
			continue
		case page.Next != "":
			turn = append(turn, place{at.shard, page.Next})
		}
		unlisted = 0
		for _, id := range page.IDs {
			s.enqueue(id)
		}
	}
	return failed
}

// maxBacklog bounds the memory for a provider's questions. The next sweep has those beyond.
const maxBacklog = 10_000

// enqueue leaves the record to the workers of the provider whose answer it waits for. Each has
// workers of its own: however slowly a provider answers, the questions of the others are not behind
// its own. Operations that the sweep does not know wait for no provider's, and are together.
func (s *sweep) enqueue(id string) {
	_, operation := namesOf(id)
	provider := s.operations[operation].Provider
	due, ok := s.backlogs[provider]
	if !ok {
		due = make(chan string, maxBacklog)
		s.backlogs[provider] = due
		for range s.opts.Concurrency {
			s.workers.Go(func() {
				for id := range due {
					s.record(id)
				}
			})
		}
	}
	left := 0
	select {
	case due <- id:
	default:
		left = 1
	}
	s.count(func(r *Report) { r.Listed, r.Left = r.Listed+1, r.Left+left })
}
