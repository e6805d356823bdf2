package idem

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// lateFor is how long a queued write is tried. The record has long gone by its
	// declaration then, but an Unknown still accepts its own attempt's outcome.
	lateFor = time.Hour
	// lateOverhead is what a queued write counts for besides its result.
	lateOverhead = 1 << 10
	// lateLarge is the size from which a queued write may need more time than a call
	// has for it before its own claim.
	lateLarge    = 64 << 10
	latePauseMin = 50 * time.Millisecond
	latePauseMax = 5 * time.Second
)

// late is a write that could not be confirmed in time. It is repeated as it is,
// with the same write id.
type late struct {
	settles string // the record that it settles, empty if the key may run again
	State   State
	Attempt int
	size    int
	since   time.Time
	write   func(context.Context) error
	tell    func(f func(context.Context, Notice), err error)
}

// queue keeps the writes for later: the next call flushes it first, and outside
// Lambda, where goroutines run on between calls, so does a goroutine that lives
// only while there is something to write.
type queue struct {
	mu      sync.Mutex
	obs     *Observer
	now     func() time.Time
	waiting []late
	inHands int            // of a round on its way
	settled map[string]int // how many settle a record, in hands too
	bytes   int
	limit   int
	running bool
	idle    chan struct{} // wakes the background writer when nothing waits any more
}

// later queues a write that the store has not confirmed. It returns false if
// there is no room for it.
func (p *plan) later(ctx context.Context, l late, err error) bool {
	e := p.engine
	l.since = e.now()
	l.size += lateOverhead
	key := p.call.Key
	ctx = context.WithoutCancel(ctx)
	l.tell = func(f func(context.Context, Notice), err error) {
		if f != nil {
			f(ctx, Notice{
				ID: key.id, Tenant: key.tenant, Operation: key.op.Name, Attempt: l.Attempt,
				State: l.State, Elapsed: e.now().Sub(l.since), Err: err,
			})
		}
	}
	q := e.queue
	q.mu.Lock()
	full := q.bytes+l.size > q.limit
	if !full {
		q.waiting = append(q.waiting, l)
		q.bytes += l.size
		if l.settles != "" {
			q.settled[l.settles]++
		}
	}
	background := !full && p.kill.IsZero() && !q.running
	q.running = q.running || background
	q.mu.Unlock()
	if full {
		l.tell(e.obs.Dropped, errors.Join(errors.New("idem: the queue of unwritten outcomes is full"), err))
		return false
	}
	l.tell(e.obs.Queued, err)
	if background {
		go q.drain()
	}
	return true
}

// take empties the queue into the caller's hands, so that nobody else writes the
// same at once. What is in hands still counts: for the bound, and as waiting.
func (q *queue) take() []late {
	q.mu.Lock()
	defer q.mu.Unlock()
	ls := q.waiting
	q.waiting, q.inHands = nil, q.inHands+len(ls)
	return ls
}

// settle ends a round: done is written or given up, and back waits again.
func (q *queue) settle(done, back []late) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(back, q.waiting...)
	q.inHands -= len(done) + len(back)
	for _, l := range done {
		q.bytes -= l.size
		if q.settled[l.settles]--; q.settled[l.settles] <= 0 {
			delete(q.settled, l.settles)
		}
	}
	if len(q.waiting)+q.inHands == 0 {
		select {
		case q.idle <- struct{}{}:
		default:
		}
	}
}

// knows reports whether what settles the record waits to be written.
func (q *queue) knows(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.settled[id] > 0
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)+q.inHands == 0
}

// flush writes what waits, one after the other, until the store fails again. It
// takes at most half of the time that the context has left: the call that
// flushes has a claim of its own to write.
func (q *queue) flush(ctx context.Context) error {
	ls := q.take()
	if len(ls) == 0 {
		return nil
	}
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	return q.write(ctx, ls)
}

// write writes what was taken, one after the other, until the store fails.
func (q *queue) write(ctx context.Context, ls []late) error {
	for i, l := range ls {
		err := l.write(ctx)
		switch {
		case err == nil:
			l.tell(q.obs.Landed, nil)
		case isAnswer(err):
			l.tell(q.obs.Dropped, err)
		case q.now().Sub(l.since) > lateFor:
			l.tell(q.obs.Dropped, err)
		default:
			// The one that failed goes behind the others: the fault may be its own.
			q.settle(ls[:i], append(ls[i+1:len(ls):len(ls)], l))
			return err
		}
	}
	q.settle(ls, nil)
	return nil
}

// flushLarge writes what waits if some of it is too large for the time before a
// claim. It is for after a call's own end was written, which shows that the store
// answers, where nothing runs in the background.
func (p *plan) flushLarge(ctx context.Context) {
	q := p.engine.queue
	q.mu.Lock()
	largest := 0
	for _, l := range q.waiting {
		largest = max(largest, l.size)
	}
	q.mu.Unlock()
	if largest < lateLarge {
		return
	}
	ctx, cancel := p.finishing(ctx, largest)
	defer cancel()
	_ = q.flush(ctx) // what could not be written stays in the queue
}

// drain flushes in the background until nothing waits.
func (q *queue) drain() {
	pause := latePauseMin
	for {
		select {
		case <-time.After(pause):
		case <-q.idle:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*latePauseMax)
		err := q.flush(ctx)
		cancel()
		if err == nil {
			pause = latePauseMin
		} else {
			pause = min(2*pause, latePauseMax)
		}
		q.mu.Lock()
		if len(q.waiting)+q.inHands == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
	}
}

// Flush writes the outcomes that could not be written yet. Call it before a
// process outside Lambda ends: when it returns nil, nothing goes on in the
// background. It returns the store's error if some still wait;
// inside Lambda the next call does it by itself.
func (e *Engine) Flush(ctx context.Context) error {
	pause := latePauseMin
	for {
		err := e.queue.flush(ctx)
		if err == nil && e.queue.empty() {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, latePauseMax)
	}
}
