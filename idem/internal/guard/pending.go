package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Pending writes, before a key is read or claimed, what could not be written earlier. A key
// whose outcome this process knows is not claimed before the record says it.
type Pending struct {
	protocol.Store
	now    func() time.Time
	budget time.Duration // of one small write
	tell   Tell
	queue  *queue

	mu     sync.Mutex
	failed Instant // when what waits could not be written last
}

// NewPending keeps what the store does not confirm: ends of attempts and withdrawals. A small write
// gets the budget, a large one a second more for each MiB.
func NewPending(s protocol.Store, now func() time.Time, budget time.Duration, tell Tell) *Pending {
	q := &queue{most: queueBytes, blocked: map[string]int{}, idle: make(chan struct{}, 1)}
	return &Pending{Store: s, now: now, budget: budget, tell: tell, queue: q}
}

// Bound bounds what may wait, in bytes.
func (p *Pending) Bound(bytes int) { p.queue.most = bytes }

// flushPause is how long no call tries to write what waits, once that has failed.
const flushPause = time.Second

// flush writes what waits. What cannot be written stays in the queue.
func (p *Pending) flush(ctx context.Context) {
	if p.queue.empty() {
		return
	}
	now := RightNow()
	p.mu.Lock()
	early := now.Since(p.failed) < flushPause
	p.mu.Unlock()
	if !early && p.flushIn(ctx) != nil {
		p.mu.Lock()
		p.failed = RightNow()
		p.mu.Unlock()
	}
}

// known writes what this process knows of the key's earlier attempts. It returns a conflict if it
// has: the record is another one now.
func (p *Pending) known(ctx context.Context, id string) error {
	if !p.queue.hasOutcomeOf(id) {
		return nil
	}
	if err := p.writeOf(ctx, id); err != nil {
		return &protocol.StoreError{Op: "claim", Err: err}
	}
	return &protocol.ConflictError{}
}

func (p *Pending) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	p.flush(ctx)
	if err := p.known(ctx, c.Record.ID); err != nil {
		return err
	}
	err := p.Store.Acquire(ctx, now, c)
	if failed, ok := err.(*protocol.StoreError); ok && failed.Down && p.queue.hasOutcomeOf(c.Record.ID) {
		own := *failed
		own.Down = false // another call has run meanwhile: its outcome waits
		return &own
	}
	return err
}

func (p *Pending) Get(ctx context.Context, id string) (*protocol.Record, error) {
	if !protocol.IgnoresRetryQuota(ctx) {
		p.flush(ctx)
	}
	return p.Store.Get(ctx, id)
}

func (p *Pending) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	if err := p.known(ctx, s.ID); err != nil {
		return err
	}
	return p.Store.Settle(ctx, now, s)
}

// flushIn writes what waits within half of the time that the context has left, and leaves large
// results for later.
func (p *Pending) flushIn(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	return p.writeAll(ctx, p.queue.take(), false)
}

// Keep keeps the end of an attempt, or the result that it owes, for later. state is the one that it
// brings the record to.
func (p *Pending) Keep(ctx context.Context, t *End, background bool, err error) (fits, omitted bool) {
	l := pendingWrite{end: t.own(), id: strings.Clone(t.Finish.ID), state: t.Finish.Ending.State, attempt: t.Attempt}
	return p.keep(ctx, &l, background, err)
}

// KeepWithdrawal keeps a withdrawal for later.
func (p *Pending) KeepWithdrawal(ctx context.Context, w protocol.Withdrawal, background bool, err error) {
	w.Claim.Record = ownRecord(&w.Claim.Record)
	rec := &w.Claim.Record
	l := pendingWrite{withdrawal: &w, id: strings.Clone(rec.ID), state: protocol.Released,
		attempt: rec.Attempt}
	p.keep(ctx, &l, background, err)
}

// keep queues a write that the store has not confirmed. Where there is no room for
// everything the results go first: the fact is never lost for the sake of the body.
// It returns whether there is room for the write, and whether its result was given up. With
// background a goroutine writes what waits.
func (p *Pending) keep(ctx context.Context, l *pendingWrite, background bool, err error) (fits, omitted bool) {
	t := l.end
	l.since = p.now()
	l.result = t != nil && t.Written
	l.weigh()
	q := p.queue
	q.mu.Lock()
	var shed []pendingWrite
	fits = q.bytes+l.size <= q.most
	if !fits && t != nil && t.spare() > 0 {
		t.Drop(errors.Join(errQueueFull, err))
		l.weigh()
		fits = !l.result && q.bytes+l.size <= q.most
	}
	// A withdrawal drops no result of another write.
	if !fits && t != nil && !l.result {
		shed = q.shed(q.bytes + l.size - q.most)
		fits = q.bytes+l.size <= q.most
	}
	if fits {
		q.waiting = append(q.waiting, *l)
		q.count(l, 1)
	}
	omitted = t != nil && t.Omitted != nil
	state := l.recorded() // once it waits, another goroutine may write it
	background = background && fits && !q.running
	q.running = q.running || background
	q.mu.Unlock()
	for _, s := range shed {
		kind := notice.ResultOmitted
		if s.withdrawal != nil {
			kind = notice.OutcomeDropped
		}
		p.report(ctx, kind, &s, s.recorded(), errQueueFull)
	}
	switch {
	case fits:
		p.report(ctx, notice.OutcomeQueued, l, state, err)
	case l.result:
		p.report(ctx, notice.ResultOmitted, l, state, t.Omitted)
	default:
		p.report(ctx, notice.OutcomeDropped, l, state, errors.Join(errQueueFull, err))
	}
	if background {
		go p.drain()
	}
	return fits, omitted
}

// report tells the observer about a write that was queued, and the record's state.
func (p *Pending) report(ctx context.Context, kind notice.Kind, l *pendingWrite, state protocol.State, err error) {
	p.tell(ctx, kind, l.id, notice.Notice{Attempt: l.attempt, State: state, Elapsed: p.now().Sub(l.since), Err: err})
}

// Flush writes what waits. It returns nil when nothing runs in the background any more, else the
// store's error.
func (p *Pending) Flush(ctx context.Context) error {
	pause := flushPauseMin
	for {
		err := p.writeAll(ctx, p.queue.take(), true)
		if err == nil && p.queue.empty() {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, flushPauseMax)
	}
}

// FlushLarge writes what waits if some of it is too large for the time before a claim, within the
// time that bounded gives for the size.
func (p *Pending) FlushLarge(bounded func(size int) (context.Context, context.CancelFunc)) {
	q := p.queue
	q.mu.Lock()
	largest := 0
	for _, l := range q.waiting {
		largest = max(largest, l.size)
	}
	q.mu.Unlock()
	if largest < LargeResult {
		return
	}
	ctx, cancel := bounded(largest)
	defer cancel()
	_ = p.writeAll(ctx, q.take(), true) // what could not be written stays in the queue
}

// Allowance is the extra time for writing a large result, a second per MiB.
func Allowance(size int) time.Duration { return time.Duration(size) * time.Second >> 20 }

// Expiry is when an outcome ends that is sent now. No retention is so short that the outcome could
// expire before its own write, which has the budget, has landed.
func Expiry(now time.Time, retention, budget time.Duration, size int) time.Time {
	return protocol.RoundUp(now.Add(max(retention, budget+Allowance(size))), time.Second)
}

func (p *Pending) expiry(now time.Time, retention time.Duration, size int) time.Time {
	return Expiry(now, retention, p.budget, size)
}

// errPendingOutcome says why a claim was not even asked for.
var errPendingOutcome = errors.New("this process knows how an earlier attempt with this key ended, and " +
	"could not write it yet")

const (
	flushPauseMin = 50 * time.Millisecond
	flushPauseMax = 5 * time.Second
)

// takeOf takes the outcomes of the record out of the queue, as [queue.take] does with
// everything.
func (q *queue) takeOf(id string) (mine []pendingWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var others []pendingWrite
	for _, l := range q.waiting {
		if l.blocks == id {
			mine = append(mine, l)
		} else {
			others = append(others, l)
		}
	}
	q.waiting, q.inFlight = others, q.inFlight+len(mine)
	return mine
}

// writeOf writes the record's outcomes before the key may be claimed again: this
// process knows that the operation has run, whatever the record says. It waits for
// those that another round is writing.
func (p *Pending) writeOf(ctx context.Context, id string) error {
	for pause := time.Millisecond; p.queue.hasOutcomeOf(id); pause = min(2*pause, flushPauseMin) {
		if mine := p.queue.takeOf(id); len(mine) > 0 {
			if err := p.writeAll(ctx, mine, false); err != nil {
				return fmt.Errorf("%w: %w", errPendingOutcome, err)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errPendingOutcome, ctx.Err())
		case <-time.After(pause):
		}
	}
	return nil
}

// writeAll writes what was taken, one after the other, until the store fails. Each gets
// as much time as its call would have had, within the context's. It leaves large
// results whose outcome is recorded for later, unless large is set.
func (p *Pending) writeAll(ctx context.Context, took []pendingWrite, large bool) error {
	if len(took) == 0 {
		return nil
	}
	var back []pendingWrite
	for i := range took {
		l := took[i]
		err := p.writeOne(ctx, &l, large)
		t := l.end
		switch {
		case err == nil && t != nil && t.Owes():
			back = append(back, l)
		case err == nil:
			if t != nil && t.Omitted != nil {
				p.report(context.Background(), notice.ResultOmitted, &l, l.recorded(), t.Omitted)
			}
			if t == nil || t.Omitted == nil || !l.result {
				p.report(context.Background(), notice.OutcomeLanded, &l, l.recorded(), nil)
			}
		case !protocol.Answers(err) && p.now().Sub(l.since) <= pendingFor:
			// The one that failed goes behind the others: the fault may be its own.
			p.queue.requeue(took, append(append(back, took[i+1:]...), l))
			return err
		case t != nil && t.Written:
			p.report(context.Background(), notice.ResultOmitted, &l, l.recorded(), err)
		default:
			p.report(context.Background(), notice.OutcomeDropped, &l, l.recorded(), err)
		}
	}
	p.queue.requeue(took, back)
	return nil
}

// writeOne writes one that was taken; a large result of a recorded outcome only if large is set.
func (p *Pending) writeOne(ctx context.Context, l *pendingWrite, large bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.budget+Allowance(l.size))
	defer cancel()
	if w := l.withdrawal; w != nil {
		now := p.now()
		if !w.ExpiresAt.IsZero() {
			w.ExpiresAt = p.expiry(now, max(w.Claim.Record.Retention, LateRequests), 0)
		}
		err := p.Store.Withdraw(ctx, now, *w)
		if _, met := errors.AsType[*protocol.ConflictError](err); met { // the claim is no more
			return nil
		}
		return err
	}
	t := l.end
	if !t.Written {
		if err := p.Write(ctx, t); err != nil {
			return err
		}
	}
	if !t.Owes() || !large && len(t.Finish.Ending.Result) >= LargeResult {
		return nil
	}
	return p.AddResult(ctx, t)
}

// drain flushes in the background until nothing waits.
func (p *Pending) drain() {
	pause := flushPauseMin
	for {
		select {
		case <-time.After(pause):
		case <-p.queue.idle:
		}
		err := p.writeAll(context.Background(), p.queue.take(), true)
		if err == nil {
			pause = flushPauseMin
		} else {
			pause = min(2*pause, flushPauseMax)
		}
		q := p.queue
		q.mu.Lock()
		if len(q.waiting)+q.inFlight == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
	}
}
