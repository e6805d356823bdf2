package idemtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// intercepted is a store of which each call goes through one function. It has the calls of
// [protocol.AdminStore] and [protocol.Scanner] too, and refuses them over a store without
// them. Its methods are documented there and at [idem.Store].
type intercepted struct {
	store   protocol.Store
	through Fault
}

var (
	_ protocol.Store      = (*intercepted)(nil)
	_ protocol.AdminStore = (*intercepted)(nil)
	_ protocol.Scanner    = (*intercepted)(nil)
)

// Traits are those of the store.
func (i *intercepted) Traits() protocol.Traits { return i.store.Traits() }

func (i *intercepted) call(ctx context.Context, m Method, id string, do func(context.Context) error) error {
	return i.through(ctx, &Call{Method: m, ID: id, do: do})
}

// read makes a call that has an answer. A fault may make it again later: that
// answer reaches no caller.
func read[T any](ctx context.Context, i *intercepted, m Method, id string,
	get func(context.Context) (T, error)) (T, error) {
	var mu sync.Mutex
	var answer T
	err := i.call(ctx, m, id, func(ctx context.Context) error {
		got, err := get(ctx)
		mu.Lock()
		defer mu.Unlock()
		answer = got
		return err
	})
	if err != nil {
		return *new(T), err
	}
	mu.Lock()
	defer mu.Unlock()
	return answer, nil
}

// over is read of what only some stores have.
func over[S, T any](
	ctx context.Context, i *intercepted, m Method, id string, get func(context.Context, S) (T, error),
) (T, error) {
	return read(ctx, i, m, id, func(ctx context.Context) (T, error) {
		s, ok := i.store.(S)
		if !ok {
			return *new(T), fmt.Errorf("idemtest: the store has no %s: %w", m, errors.ErrUnsupported)
		}
		return get(ctx, s)
	})
}

func (i *intercepted) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	return i.call(ctx, Acquire, c.Record.ID, func(ctx context.Context) error { return i.store.Acquire(ctx, now, c) })
}

func (i *intercepted) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	return i.call(ctx, Withdraw, w.Claim.Record.ID,
		func(ctx context.Context) error { return i.store.Withdraw(ctx, now, w) })
}

func (i *intercepted) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	return i.call(ctx, Extend, e.ID, func(ctx context.Context) error { return i.store.Extend(ctx, now, e) })
}

func (i *intercepted) RecordStep(ctx context.Context, now time.Time, s protocol.StepWrite) error {
	return i.call(ctx, RecordStep, s.ID, func(ctx context.Context) error { return i.store.RecordStep(ctx, now, s) })
}

func (i *intercepted) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	return i.call(ctx, RecordReference, r.ID,
		func(ctx context.Context) error { return i.store.RecordReference(ctx, now, r) })
}

func (i *intercepted) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	return i.call(ctx, Finish, f.ID, func(ctx context.Context) error { return i.store.Finish(ctx, now, f) })
}

func (i *intercepted) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	return i.call(ctx, Settle, s.ID, func(ctx context.Context) error { return i.store.Settle(ctx, now, s) })
}

func (i *intercepted) Get(ctx context.Context, id string) (*protocol.Record, error) {
	return read(ctx, i, Get, id, func(ctx context.Context) (*protocol.Record, error) { return i.store.Get(ctx, id) })
}

func (i *intercepted) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	return read(ctx, i, Result, idOf(rec), func(ctx context.Context) ([]byte, error) { return i.store.Result(ctx, rec) })
}

func (i *intercepted) StepResult(ctx context.Context, rec *protocol.Record, name string) ([]byte, error) {
	return read(ctx, i, StepResult, idOf(rec), func(ctx context.Context) ([]byte, error) {
		return i.store.StepResult(ctx, rec, name)
	})
}

func idOf(rec *protocol.Record) string {
	if rec == nil {
		return ""
	}
	return rec.ID
}

func (i *intercepted) Due(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
	return over(ctx, i, Due, "", func(ctx context.Context, s protocol.AdminStore) (protocol.DuePage, error) {
		return s.Due(ctx, q)
	})
}

func (i *intercepted) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	return ask(ctx, i, Postpone, p.ID,
		func(ctx context.Context, s protocol.AdminStore) error { return s.Postpone(ctx, now, p) })
}

func (i *intercepted) Forget(ctx context.Context, now time.Time, e protocol.Erasure) error {
	return ask(ctx, i, Forget, e.ID,
		func(ctx context.Context, s protocol.AdminStore) error { return s.Forget(ctx, now, e) })
}

func (i *intercepted) Prolong(ctx context.Context, now time.Time, w protocol.Prolongation) error {
	return ask(ctx, i, Prolong, w.ID,
		func(ctx context.Context, s protocol.AdminStore) error { return s.Prolong(ctx, now, w) })
}

func (i *intercepted) AuditOf(ctx context.Context, id, page string) (protocol.AuditPage, error) {
	return over(ctx, i, AuditOf, id, func(ctx context.Context, s protocol.AdminStore) (protocol.AuditPage, error) {
		return s.AuditOf(ctx, id, page)
	})
}

func (i *intercepted) AuditBetween(
	ctx context.Context, shard int, from, to time.Time, page string,
) (protocol.AuditPage, error) {
	return over(ctx, i, AuditBetween, "", func(ctx context.Context, s protocol.AdminStore) (protocol.AuditPage, error) {
		return s.AuditBetween(ctx, shard, from, to, page)
	})
}

func (i *intercepted) Scan(ctx context.Context, q protocol.ScanQuery) (protocol.ScanPage, error) {
	return over(ctx, i, Scan, "", func(ctx context.Context, s protocol.Scanner) (protocol.ScanPage, error) {
		return s.Scan(ctx, q)
	})
}

// ask makes a call of [protocol.AdminStore] that has no answer.
func ask(
	ctx context.Context, i *intercepted, m Method, id string, do func(context.Context, protocol.AdminStore) error,
) error {
	_, err := over(ctx, i, m, id, func(ctx context.Context, s protocol.AdminStore) (struct{}, error) {
		return struct{}{}, do(ctx, s)
	})
	return err
}
