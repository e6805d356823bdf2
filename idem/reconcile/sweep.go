package reconcile

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Sweep looks at all that is due now, once. It lists the shards of the index in turn, a page
// each, side by side, and begins with a random one. Each provider's questions have workers of their own,
// which begin with the one that has been due for longest. Sweep returns when it has seen
// all, or when the context's time is nearly over. The next sweep does what is left, and
// finishes what this one has left half done.
//
// Every write is conditional on what was read. If another write was faster, Sweep
// reads the record once more, and then leaves it to the next sweep. If three shards in a row
// cannot be listed, for example because the table does not exist, it lists no others. The
// error joins the errors of these shards, equal ones once. The report counts all other
// failures.
func (s *Sweeper) Sweep(ctx context.Context) (Report, error) {
	x := &sweep{Sweeper: s, ctx: ctx, until: s.r.now(), asking: s.opts.ProbeTimeout, backlogs: map[string]chan string{},
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
	until  time.Time     // what is due later is another sweep's
	asking time.Duration // for a call of Probe, OnAbandoned and Escalate

	workers  sync.WaitGroup
	backlogs map[string]chan string // ids of what is due, by provider: the longest due first

	mu     sync.Mutex
	report Report

	read pausesRead
}

// pausesRead is what was paused when the store was last asked, and its error.
type pausesRead struct {
	sync.Mutex
	at  time.Time
	is  protocol.Paused
	err error
}

// pausesLast is how long a sweep relies on what it has read of pauses.
const pausesLast = 5 * time.Second

// readPauses reads what is paused, when it is first needed and again after some seconds.
func (s *sweep) readPauses() ([]protocol.Pause, error) {
	store, ok := s.r.store.(PauseStore)
	if !ok {
		return nil, nil
	}
	p := &s.read
	p.Lock()
	defer p.Unlock()
	if time.Since(p.at) < pausesLast {
		return p.is.Pauses, p.err
	}
	ctx, cancel := s.share(s.ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, pausesLast)
	defer stop()
	p.at = time.Now() // the table may answer at once
	if p.is, p.err = store.ReadPaused(ctx); errors.Is(p.err, errors.ErrUnsupported) {
		p.err = nil
	}
	if p.err != nil {
		p.at = time.Now()
	}
	return p.is.Pauses, p.err
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

// maxUnlisted is how many shards may fail until the store counts as down, if no other one has answered: single
// ones may have met a throttled partition.
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
// provider's questions is listed too. A shard with very much that is due takes turns with the others.
func (s *sweep) list(ctx context.Context) error {
	l := &listing{next: make([]place, protocol.Shards)}
	first := rand.IntN(protocol.Shards)
	for i := range l.next {
		l.next[i].shard = (first + i) % protocol.Shards
	}
	for len(l.next) > 0 {
		read := make(chan struct{})
		go func() {
			defer close(read)
			s.pages(ctx, l)
		}()
		// The workers move records between shards. So all shards are read first, but for one that is throttled.
		select {
		case <-read:
		case <-time.After(leastCall):
			s.work(l)
			<-read
		}
		s.work(l)
		if l.down || ctx.Err() != nil {
			s.count(func(r *Report) { r.More = r.More || len(l.next) > 0 })
			break
		}
	}
	return l.failed
}

// listing is what list has come to.
type listing struct {
	next []place // of the shards that it has not read to the end

	mu       sync.Mutex
	pages    [][]string // of ids that the workers do not have
	answered bool       // a call has succeeded
	unlisted int        // calls that failed
	down     bool       // so many, and no other call, that no further one is made
	failed   error
}

// place is where the list of a shard continues.
type place struct {
	shard int
	page  string
}

// work leaves what was read to the workers, in turns.
func (s *sweep) work(l *listing) {
	l.mu.Lock()
	pages := l.pages
	l.pages = nil
	l.mu.Unlock()
	for i, more := 0, true; more; i++ {
		more = false
		for _, ids := range pages {
			if i < len(ids) {
				s.enqueue(ids[i])
				more = true
			}
		}
	}
}

// pages reads the next page of each shard that has one, side by side.
func (s *sweep) pages(ctx context.Context, l *listing) {
	turn := l.next
	l.next = nil
	var g errgroup.Group
	g.SetLimit(readers)
	for _, at := range turn {
		g.Go(func() error {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.down || ctx.Err() != nil {
				l.next = append(l.next, at)
				return nil
			}
			l.mu.Unlock()
			page, err := s.due(ctx, at)
			l.mu.Lock()
			switch {
			case err == nil:
				l.answered = true
				l.pages = append(l.pages, page.IDs)
				if page.Next != "" {
					l.next = append(l.next, place{at.shard, page.Next})
				}
			case ctx.Err() != nil:
				l.next = append(l.next, at)
			default:
				s.count(func(r *Report) {
					if r.problem("%v", err) || l.failed == nil {
						l.failed = errors.Join(l.failed, err)
					}
				})
				l.unlisted++
				l.down = !l.answered && l.unlisted >= maxUnlisted
			}
			return nil
		})
	}
	_ = g.Wait() // no error
}

func (s *sweep) due(ctx context.Context, at place) (protocol.DuePage, error) {
	ctx, cancel := s.share(ctx)
	defer cancel()
	return s.r.store.Due(ctx, protocol.DueQuery{Shard: at.shard, Until: s.until, Page: at.page, Limit: pageSize})
}

// maxBacklog bounds the memory for a provider's questions. The next sweep has those beyond.
const maxBacklog = 100_000

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
