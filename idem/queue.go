package idem

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// pendingFor is how long a queued write is tried. The record has long been taken over or
	// parked then, but an Unknown still accepts its own attempt's outcome.
	pendingFor = time.Hour
	// pendingOverhead is what a queued write counts for besides what it carries, a record
	// that it carries for recordOverhead more.
	pendingOverhead = 1 << 10
	recordOverhead  = 512
	// queueBytes bounds what waits. Where that is full, results are dropped first, then what takes
	// back claims under which nothing ran, then outcomes. The observer gets a notice of each.
	queueBytes = 32 << 20
	// largeResult is the size from which a queued result may need more time than a call
	// has for it before its own claim.
	largeResult = 64 << 10
)

var errQueueFull = errors.New("idem: the queue of unwritten outcomes is full")

// pendingWrite is a write that could not be confirmed in time: an end, or a withdrawal. It
// holds what the write needs and nothing else, neither the call nor its context.
type pendingWrite struct {
	terminal   *terminal
	withdrawal *protocol.Withdrawal

	id, tenant, operation string
	State                 State
	Attempt               int
	since                 time.Time
	result                bool // of the terminal, only the result was left to write
	// As it is counted in the queue.
	size   int
	blocks string // the record whose key must not run before; empty if it may
}

// weigh says what the write counts for from now on.
func (l *pendingWrite) weigh() {
	l.size, l.blocks = pendingOverhead+len(l.id)+len(l.tenant)+len(l.operation), ""
	if w := l.withdrawal; w != nil {
		l.size += recordSize(&w.Claim.Record)
		return
	}
	l.size += l.terminal.size()
	if !l.terminal.written && l.State != Released {
		l.blocks = l.id
	}
}

// spare is what the queue has of giving up its result: all, if the end is recorded, and
// of a withdrawal, under whose claim nothing ran.
func (l *pendingWrite) spare() int {
	if l.terminal == nil || l.terminal.written {
		return l.size
	}
	return l.terminal.spare()
}

// queue keeps the writes for later: the next call flushes it first, and outside
// Lambda, where goroutines run on between calls, so does a goroutine that lives
// only while there is something to write.
type queue struct {
	engine   *Engine
	most     int // bytes that may wait
	mu       sync.Mutex
	waiting  []pendingWrite
	inFlight int            // of a round on its way
	blocked  map[string]int // how many block a record's key, those in flight too
	bytes    int
	running  bool
	idle     chan struct{} // wakes the background writer when nothing waits any more
}

func newQueue(e *Engine) *queue {
	return &queue{engine: e, most: queueBytes, blocked: map[string]int{}, idle: make(chan struct{}, 1)}
}

func (q *queue) count(l *pendingWrite, sign int) {
	q.bytes += sign * l.size
	if l.blocks == "" {
		return
	}
	if q.blocked[l.blocks] += sign; q.blocked[l.blocks] <= 0 {
		delete(q.blocked, l.blocks)
	}
}

// enqueue queues a write that the store has not confirmed. Where there is no room for
// everything the results go first: the fact is never lost for the sake of the body.
// It returns whether there is room for the write, and whether its result was given up.
func (x *execution) enqueue(ctx context.Context, l *pendingWrite, err error) (fits, omitted bool) {
	e, key, t := x.engine, x.call.Key, l.terminal
	l.id, l.tenant, l.operation = strings.Clone(key.id), strings.Clone(key.tenant), strings.Clone(key.op.Name)
	l.since = e.now()
	l.result = t != nil && t.written
	l.weigh()
	q := e.queue
	q.mu.Lock()
	var shed []pendingWrite
	fits = q.bytes+l.size <= q.most
	if !fits && t != nil && t.spare() > 0 {
		t.drop(errors.Join(errQueueFull, err))
		l.weigh()
		fits = !l.result && q.bytes+l.size <= q.most
	}
	// A withdrawal costs no call its result.
	if !fits && t != nil && !l.result {
		shed = q.shed(q.bytes + l.size - q.most)
		fits = q.bytes+l.size <= q.most
	}
	if fits {
		q.waiting = append(q.waiting, *l)
		q.count(l, 1)
	}
	omitted = t != nil && t.omitted != nil
	state := l.recorded() // once it waits, another goroutine may write it
	background := fits && x.kill.IsZero() && !q.running
	q.running = q.running || background
	q.mu.Unlock()
	for _, s := range shed {
		kind := notice.ResultOmitted
		if s.withdrawal != nil {
			kind = notice.OutcomeDropped
		}
		e.tellOf(ctx, kind, &s, s.recorded(), errQueueFull)
	}
	switch {
	case fits:
		e.tellOf(ctx, notice.OutcomeQueued, l, state, err)
	case l.result:
		e.tellOf(ctx, notice.ResultOmitted, l, state, t.omitted)
	default:
		e.tellOf(ctx, notice.OutcomeDropped, l, state, errors.Join(errQueueFull, err))
	}
	if background {
		go q.drain()
	}
	return fits, omitted
}

// shed gives up waiting results until the bytes are free: those whose end is recorded,
// then those of ends that are still to be written, which stay without them, and then
// withdrawals. It returns what does not wait any more. The caller holds the lock.
func (q *queue) shed(bytes int) (gone []pendingWrite) {
	free := 0
	for i := range q.waiting {
		free += q.waiting[i].spare()
	}
	if free < bytes {
		return nil
	}
	remove := func(which func(*pendingWrite) bool) {
		q.waiting = slices.DeleteFunc(q.waiting, func(l pendingWrite) bool {
			if bytes <= 0 || !which(&l) {
				return false
			}
			q.count(&l, -1)
			bytes -= l.size
			gone = append(gone, l)
			return true
		})
	}
	remove(func(l *pendingWrite) bool { return l.terminal != nil && l.terminal.written })
	for i := range q.waiting {
		l := &q.waiting[i]
		n := l.spare()
		if bytes <= 0 || l.terminal == nil || n == 0 {
			continue
		}
		q.count(l, -1)
		l.terminal.drop(errQueueFull)
		l.weigh()
		q.count(l, 1)
		bytes -= n
	}
	remove(func(l *pendingWrite) bool { return l.withdrawal != nil })
	return gone
}

// recorded is the state that the record has as long as the write waits.
func (l *pendingWrite) recorded() State {
	if l.terminal != nil && !l.terminal.written {
		return InProgress
	}
	return l.State
}

// tellOf tells the observer about a write that was queued, and the record's state.
func (e *Engine) tellOf(ctx context.Context, kind notice.Kind, l *pendingWrite, state State, err error) {
	e.tell(ctx, kind, notice.Notice{
		ID: l.id, Tenant: l.tenant, Operation: l.operation, Attempt: l.Attempt,
		State: state, Elapsed: e.now().Sub(l.since), Err: err,
	})
}

// take empties the queue for the caller to write, so that no other goroutine writes the
// same at once. What was taken still counts: for the bound, and as waiting.
func (q *queue) take() []pendingWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	ls := q.waiting
	q.waiting, q.inFlight = nil, q.inFlight+len(ls)
	return ls
}

// requeue ends a round for the writes that were taken: those in back wait again, before
// those that have come since.
func (q *queue) requeue(took, back []pendingWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range took {
		q.count(&took[i], -1)
	}
	for i := range back {
		back[i].weigh()
		q.count(&back[i], 1)
	}
	q.waiting = append(back, q.waiting...)
	q.inFlight -= len(took)
	if len(q.waiting)+q.inFlight == 0 {
		select {
		case q.idle <- struct{}{}:
		default:
		}
	}
}

// hasOutcomeOf reports whether an outcome of the record waits to be written.
func (q *queue) hasOutcomeOf(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.blocked[id] > 0
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)+q.inFlight == 0
}

// fenceFor is how long a withdrawn claim is kept out at least, whatever the retention.
const fenceFor = guard.LateRequests
