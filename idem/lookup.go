package idem

import (
	"context"
	"time"
)

// Status is what is recorded of a key, without its result.
type Status struct {
	// State is Absent for a key without a record, and for one whose outcome has expired.
	State State
	// Attempt is the number of the latest attempt.
	Attempt int
	// LeaseUntil is when the claim of a record in progress stops being respected.
	LeaseUntil time.Time
	// CreatedAt is the first claim, UpdatedAt the last write. ExpiresAt is until when the
	// outcome is replayed; zero for a record that stays.
	CreatedAt, UpdatedAt, ExpiresAt time.Time
	// Failure of a failed record; of others the last attempt's error, if it is known.
	Failure *Failure
	// Ref is what the provider calls the effect, if that is known.
	Ref string
}

// Lookup reads what is recorded of the key, for a service's own status pages. It claims
// and changes nothing, and compares no input.
func (e *Engine) Lookup(ctx context.Context, key Key) (Status, error) {
	if err := key.Err(); err != nil {
		return Status{}, err
	}
	if err := e.checkSecret(ctx, &key, false); err != nil {
		return Status{}, err
	}
	rec, err := e.store.Get(ctx, key.id)
	if rec == nil || err != nil || rec.Expired(e.now().Add(-e.opts.Margin)) {
		return Status{}, err
	}
	return Status{
		State: rec.State, Attempt: rec.Attempt, LeaseUntil: rec.LeaseUntil,
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, ExpiresAt: rec.ExpiresAt, Failure: rec.Failure, Ref: rec.Ref,
	}, nil
}

// Get reads the key's record in the time of a claim, unless the store is down.
func (e *Engine) Get(ctx context.Context, key Key) (*Record, error) {
	x := &execution{engine: e, call: Call{Key: key}, begun: e.now(), called: time.Now()}
	if err := x.schedule(ctx); err != nil && x.budget <= 0 {
		return nil, err
	}
	part := x.claiming(ctx)
	defer part.end()
	err := e.checkSecret(part.ctx, &key, false)
	var rec *Record
	if err == nil {
		rec, err = x.look(part.ctx)
	}
	if err != nil {
		return nil, x.unavailable(ctx, err)
	}
	return rec, nil
}
