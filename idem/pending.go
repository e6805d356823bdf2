package idem

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// pending writes what could not be written before a key is read or claimed. A key of which this
// process knows the outcome is not claimed before the record says it.
type pending struct {
	Store
	queue *queue
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
	_ = p.queue.flush(ctx) // what could not be written stays in the queue
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
	if !protocol.IgnoresRetryQuota(ctx) {
		_ = p.queue.flush(ctx)
	}
	return p.Store.Get(ctx, id)
}

func (p *pending) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	if err := p.known(ctx, s.ID); err != nil {
		return err
	}
	return p.Store.Settle(ctx, now, s)
}
