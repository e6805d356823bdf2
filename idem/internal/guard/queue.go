package guard

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

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
	// LargeResult is the size from which a queued result may need more time than a call
	// has for it before its own claim.
	LargeResult = 64 << 10
)

var errQueueFull = errors.New("idem: the queue of unwritten outcomes is full")

// pendingWrite is a write that could not be confirmed in time: an end, or a withdrawal. It
// holds what the write needs and nothing else, neither the call nor its context.
type pendingWrite struct {
	end        *End
	withdrawal *protocol.Withdrawal

	id      string // of the record
	state   protocol.State
	attempt int
	since   time.Time
	result  bool // of the end, only the result was left to write
	// As it is counted in the queue.
	size   int
	blocks string // the record whose key must not run before; empty if it may
}

// weigh says what the write counts for from now on.
func (l *pendingWrite) weigh() {
	l.size, l.blocks = pendingOverhead+2*len(l.id), ""
	if w := l.withdrawal; w != nil {
		l.size += recordSize(&w.Claim.Record)
		return
	}
	l.size += l.end.size()
	if !l.end.Written && l.state != protocol.Released {
		l.blocks = l.id
	}
}

// spare is what the queue has of giving up its result: all, if the end is recorded, and
// of a withdrawal, under whose claim nothing ran.
func (l *pendingWrite) spare() int {
	if l.end == nil || l.end.Written {
		return l.size
	}
	return l.end.spare()
}

// queue keeps the writes for later: the next call flushes it first, and outside
// Lambda, where goroutines run on between calls, so does a goroutine that lives
// only while there is something to write.
type queue struct {
	most     int // bytes that may wait
	mu       sync.Mutex
	waiting  []pendingWrite
	inFlight int            // of a round on its way
	blocked  map[string]int // how many block a record's key, those in flight too
	bytes    int
	running  bool
	idle     chan struct{} // wakes the background writer when nothing waits any more
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

// shed gives up waiting results until the bytes are free: those whose end is recorded,
// then those of ends that are still to be written, which stay without them, and then
// withdrawals. It returns what does not wait any more. The caller holds the lock.
func (q *queue) shed(bytes int) (dropped []pendingWrite) {
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
			dropped = append(dropped, l)
			return true
		})
	}
	remove(func(l *pendingWrite) bool { return l.end != nil && l.end.Written })
	for i := range q.waiting {
		l := &q.waiting[i]
		n := l.spare()
		if bytes <= 0 || l.end == nil || n == 0 {
			continue
		}
		q.count(l, -1)
		l.end.Drop(errQueueFull)
		l.weigh()
		q.count(l, 1)
		bytes -= n
	}
	remove(func(l *pendingWrite) bool { return l.withdrawal != nil })
	return dropped
}

// recorded is the state that the record has as long as the write waits.
func (l *pendingWrite) recorded() protocol.State {
	if l.end != nil && !l.end.Written {
		return protocol.InProgress
	}
	return l.state
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

// own returns a copy that shares nothing with the call that it comes from: a part of
// a text or of a buffer keeps the whole of it in memory.
func (t *End) own() *End {
	c := *t
	f := &c.Finish
	f.ID, f.Owner, f.Write = strings.Clone(f.ID), strings.Clone(f.Owner), strings.Clone(f.Write)
	f.Ending.Result, c.Summary = slices.Clone(f.Ending.Result), slices.Clone(t.Summary)
	if old := f.Ending.Failure; old != nil {
		f.Ending.Failure = &protocol.Failure{Message: strings.Clone(old.Message), Type: strings.Clone(old.Type),
			Code: strings.Clone(old.Code)}
	}
	return &c
}

// size is what the copy takes besides its fixed part.
func (t *End) size() int {
	n := len(t.Finish.Ending.Result) + len(t.Summary)
	if f := t.Finish.Ending.Failure; f != nil {
		n += len(f.Message) + len(f.Type) + len(f.Code)
	}
	return n
}

// ownRecord does the same for the record of a withdrawal's claim.
func ownRecord(rec *protocol.Record) protocol.Record {
	c := *rec.Clone()
	c.ID, c.Value, c.Fingerprint = strings.Clone(c.ID), strings.Clone(c.Value),
		protocol.Fingerprint(strings.Clone(string(c.Fingerprint)))
	return c
}

// recordSize is the size of what an engine's own claim can hold.
func recordSize(rec *protocol.Record) int {
	n := recordOverhead + len(rec.Value)
	for name, s := range rec.Steps {
		n += recordOverhead + len(name) + len(s.Body.Data)
		if s.Failure != nil {
			n += len(s.Failure.Message) + len(s.Failure.Type) + len(s.Failure.Code)
		}
	}
	return n
}
