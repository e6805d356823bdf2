package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errKnown says why a claim was not even asked for.
var errKnown = errors.New("this process knows how an earlier attempt with this key ended, and could not write it yet")

// takeOf takes what settles the record out of the queue, as [queue.take] does with
// everything.
func (q *queue) takeOf(id string) (mine []late) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var others []late
	for _, l := range q.waiting {
		if l.settles == id {
			mine = append(mine, l)
		} else {
			others = append(others, l)
		}
	}
	q.waiting, q.inHands = others, q.inHands+len(mine)
	return mine
}

// first writes what settles the record, before the key may be claimed again: this
// process knows that the operation has run, whatever the record says. What another
// round has in its hands is waited for.
func (q *queue) first(ctx context.Context, id string) error {
	for pause := time.Millisecond; q.knows(id); pause = min(2*pause, latePauseMin) {
		if mine := q.takeOf(id); len(mine) > 0 {
			if err := q.write(ctx, mine, false); err != nil {
				return fmt.Errorf("%w: %w", errKnown, err)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errKnown, ctx.Err())
		case <-time.After(pause):
		}
	}
	return nil
}

// settleFirst writes what this process knows of the key's earlier attempts, if it
// knows anything. It returns false if it knows nothing: the claim may go on.
func (p *plan) settleFirst(ctx context.Context) (wrote bool, err error) {
	q, id := p.engine.queue, p.call.Key.id
	if !q.knows(id) {
		return false, nil
	}
	if err := q.first(ctx, id); err != nil {
		return true, &StoreError{Op: "claim", Err: err}
	}
	return true, nil
}
