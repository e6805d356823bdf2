package guard

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
// results whose outcome is recorded for later unless it is told to write them.
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

// writeOne writes one that was taken; a large result of a recorded outcome only if told.
func (p *Pending) writeOne(ctx context.Context, l *pendingWrite, large bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.budget+Allowance(l.size))
	defer cancel()
	if w := l.withdrawal; w != nil {
		now := p.now()
		if !w.ExpiresAt.IsZero() {
			w.ExpiresAt = p.expiry(now, max(w.Claim.Record.Retention, LateRequests), 0)
		}
		return p.Store.Withdraw(ctx, now, *w)
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
