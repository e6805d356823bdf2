package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// errPendingOutcome says why a claim was not even asked for.
var errPendingOutcome = errors.New("this process knows how an earlier attempt with this key ended, and could not write it yet")

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

// writePendingOf writes the record's outcomes before the key may be claimed again: this
// process knows that the operation has run, whatever the record says. It waits for
// those that another round is writing.
func (q *queue) writePendingOf(ctx context.Context, id string) error {
	for pause := time.Millisecond; q.hasOutcomeOf(id); pause = min(2*pause, flushPauseMin) {
		if mine := q.takeOf(id); len(mine) > 0 {
			if err := q.write(ctx, mine, false); err != nil {
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

// flush writes what waits before a call makes its own claim: it takes at most half of
// the time that the context has left, and leaves large results for later.
func (q *queue) flush(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !q.empty() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	return q.write(ctx, q.take(), false)
}

// write writes what was taken, one after the other, until the store fails. Each gets
// as much time as its call would have had, within the context's. It leaves large
// results whose outcome is recorded for later unless large is set.
func (q *queue) write(ctx context.Context, took []pendingWrite, large bool) error {
	if len(took) == 0 {
		return nil
	}
	e := q.engine
	var back []pendingWrite
	for i := range took {
		l := took[i]
		err := q.writeOne(ctx, &l, large)
		t := l.terminal
		switch {
		case err == nil && t != nil && t.owes():
			back = append(back, l)
		case err == nil:
			if t != nil && t.omitted != nil {
				e.tellOf(context.Background(), notice.ResultOmitted, &l, l.recorded(), t.omitted)
			}
			if t == nil || t.omitted == nil || !l.result {
				e.tellOf(context.Background(), notice.OutcomeLanded, &l, l.recorded(), nil)
			}
		case !protocol.Answers(err) && e.now().Sub(l.since) <= pendingFor:
			// The one that failed goes behind the others: the fault may be its own.
			q.requeue(took, append(append(back, took[i+1:]...), l))
			return err
		case t != nil && t.written:
			e.tellOf(context.Background(), notice.ResultOmitted, &l, l.recorded(), err)
		default:
			e.tellOf(context.Background(), notice.OutcomeDropped, &l, l.recorded(), err)
		}
	}
	q.requeue(took, back)
	return nil
}

// writeOne writes one that was taken; a large result of a recorded outcome only if large is set.
func (q *queue) writeOne(ctx context.Context, l *pendingWrite, large bool) error {
	e := q.engine
	ctx, cancel := context.WithTimeout(ctx, e.opts.FinishBudget+sizeAllowance(l.size))
	defer cancel()
	if w := l.withdrawal; w != nil {
		now := e.now()
		if !w.ExpiresAt.IsZero() {
			w.ExpiresAt = e.expiry(now, max(w.Claim.Record.Retention, fenceFor), 0)
		}
		return e.store.Withdraw(ctx, now, *w)
	}
	t := l.terminal
	if !t.written {
		if err := e.writeTerminal(ctx, t); err != nil {
			return err
		}
	}
	if !t.owes() || !large && len(t.f.Ending.Result) >= largeResult {
		return nil
	}
	return e.addResult(ctx, t)
}

// flushLarge writes what waits if some of it is too large for the time before a claim.
// It is called where nothing runs in the background, once a call's own end is written:
// the store answers then.
func (x *execution) flushLarge(ctx context.Context) {
	q := x.engine.queue
	q.mu.Lock()
	largest := 0
	for _, l := range q.waiting {
		largest = max(largest, l.size)
	}
	q.mu.Unlock()
	if largest < largeResult {
		return
	}
	ctx, cancel := x.finishing(ctx, largest)
	defer cancel()
	_ = q.write(ctx, q.take(), true) // what could not be written stays in the queue
}

// drain flushes in the background until nothing waits.
func (q *queue) drain() {
	pause := flushPauseMin
	for {
		select {
		case <-time.After(pause):
		case <-q.idle:
		}
		err := q.write(context.Background(), q.take(), true)
		if err == nil {
			pause = flushPauseMin
		} else {
			pause = min(2*pause, flushPauseMax)
		}
		q.mu.Lock()
		if len(q.waiting)+q.inFlight == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
	}
}

// Flush writes the outcomes that could not be written yet. Call it before a process outside
// Lambda ends. It returns nil when nothing runs in the background any more, else the
// store's error. Inside Lambda the next call does it.
func (e *Engine) Flush(ctx context.Context) error {
	pause := flushPauseMin
	for {
		err := e.queue.write(ctx, e.queue.take(), true)
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
		pause = min(2*pause, flushPauseMax)
	}
}
