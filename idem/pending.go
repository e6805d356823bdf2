package idem

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/protocol"
)

// pending writes what could not be written before a key is read or claimed. A key of which this
// process knows the outcome is not claimed before the record says it.
type pending struct {
	Store
	queue *queue

	mu     sync.Mutex
	failed guard.Instant // when what waits could not be written last
}

// flushPause is how long no call tries to write what waits, once that has failed.
const flushPause = time.Second

// flush writes what waits. What cannot be written stays in the queue.
func (p *pending) flush(ctx context.Context) {
	if p.queue.empty() {
		return
	}
	now := guard.RightNow()
	p.mu.Lock()
	early := now.Since(p.failed) < flushPause
	p.mu.Unlock()
	if !early && p.queue.flush(ctx) != nil {
		p.mu.Lock()
		p.failed = guard.RightNow()
		p.mu.Unlock()
	}
}

// known writes what this process knows of the key's earlier attempts. It returns a conflict if it
// has: the record is another one now.
func (p *pending) known(ctx context.Context, id string) error {
	if !p.queue.hasOutcomeOf(id) {
		return nil
	}
	if err := p.queue.writePendingOf(ctx, id); err != nil {
		return &StoreError{Op: "claim", Err: err}
	}
	return &protocol.ConflictError{}
}

func (p *pending) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	p.flush(ctx)
	if err := p.known(ctx, c.Record.ID); err != nil {
		return err
	}
	err := p.Store.Acquire(ctx, now, c)
	if failed, ok := err.(*StoreError); ok && failed.Down && p.queue.hasOutcomeOf(c.Record.ID) {
		failed.Down = false // another call has run meanwhile: its outcome waits
	}
	return err
}

func (p *pending) Get(ctx context.Context, id string) (*Record, error) {
	if !protocol.Insists(ctx) {
		p.flush(ctx)
	}
	return p.Store.Get(ctx, id)
}

func (p *pending) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	if err := p.known(ctx, s.ID); err != nil {
		return err
	}
	return p.Store.Settle(ctx, now, s)
}
