package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/protocol"
)

// checkedFor is how long a process relies on what it has read of an operation's check record.
const checkedFor = time.Hour

// secretCheck is what a process knows of one check record.
type secretCheck struct {
	lock chan struct{} // a mutex whose wait ends with the context
	at   guard.Instant // when the record was read last, and was under the secret
}

// checkSecret returns an error unless the operation's records are under the key's secret, as the
// operation's check record says. Each process reads that before its first claim, and again after
// an hour; with create the first process creates it.
func (e *Engine) checkSecret(ctx context.Context, key *Key, create bool) error {
	if key.keyed == nil {
		return nil
	}
	id := startOf(SingleTenant, key.op.Name)
	// It digests no input: it is the same whatever version of the fingerprint a release makes.
	want := protocol.FingerprintOf(1, key.keyed.Digest(ofCheck+id))
	found, _ := e.checks.LoadOrStore(want, &secretCheck{lock: make(chan struct{}, 1)})
	known := found.(*secretCheck)
	select {
	case known.lock <- struct{}{}:
	case <-ctx.Done():
		return checkError(context.Cause(ctx))
	}
	defer func() { <-known.lock }()
	now := guard.RightNow()
	if now.Since(known.at) < checkedFor {
		return nil
	}
	rec, err := e.store.Get(ctx, id)
	if rec == nil && err == nil && create {
		rec, err = e.createCheck(ctx, id, want)
	}
	switch {
	case err != nil:
		return err
	case rec == nil:
		return nil // no claim was ever made, and this call makes none
	case rec.Fingerprint != want:
		return checkError(key.op.invalid("its records in the store are under another secret than this process has: " +
			"use that one, or a new Name for a new secret"))
	}
	known.at = now
	return nil
}

// createCheck creates the check record, and returns the one that is there then, which may be another process's.
func (e *Engine) createCheck(ctx context.Context, id string, check Fingerprint) (*Record, error) {
	now := e.now()
	rec := Record{
		ID: id, Fingerprint: check, Owner: protocol.NewID(), Attempt: 1,
		LeaseUntil: now, Retention: DefaultRetention, CreatedAt: now, UpdatedAt: now,
	}
	err := e.store.Finish(ctx, now, protocol.Finish{
		ID: id, Owner: rec.Owner, Write: protocol.NewID(), Created: now,
		Ending: protocol.Ending{State: Completed}, Attempt: protocol.Atomic{Claim: protocol.Claim{Record: rec}},
	})
	if err == nil {
		return &rec, nil
	}
	if _, conflict := errors.AsType[*protocol.ConflictError](err); !conflict {
		return nil, err
	}
	if rec := existing(err); rec != nil {
		return rec, nil
	}
	there, err := e.store.Get(ctx, id)
	if there == nil && err == nil {
		err = checkError(errors.New("another process has removed the check record"))
	}
	return there, err
}

func checkError(err error) error { return &StoreError{Op: "secret check", Err: err} }
