package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Store is any store.
type Store interface {
	protocol.Store
	protocol.AdminStore
	protocol.Scanner
	pausing
}

// pausing is what a store does that keeps what is paused.
type pausing interface {
	ReadPaused(ctx context.Context) (protocol.Paused, error)
	WritePaused(ctx context.Context, w protocol.PausedWrite) error
}

// Intercept returns a store whose calls all go through one function. It gets the name of the method
// and the record's id, and makes the call with do. Calls of [protocol.AdminStore] and [protocol.Scanner], and
// of pauses, over a store without them are refused.
func Intercept(store protocol.Store, through Through) Store { return &intercepted{store, through} }

// Through is the function of an intercepted store.
type Through func(ctx context.Context, method, id string, do func(context.Context) error) error

type intercepted struct {
	store   protocol.Store
	through Through
}

// Traits are those of the store.
func (i *intercepted) Traits() protocol.Traits { return i.store.Traits() }

// over makes a call that has an answer, of a store that has such calls. A fault may make it again
// later: that answer reaches no caller.
func over[S, T any](
	ctx context.Context, i *intercepted, method, id string, get func(context.Context, S) (T, error),
) (T, error) {
	var mu sync.Mutex
	var answer T
	err := i.through(ctx, method, id, func(ctx context.Context) error {
		s, ok := i.store.(S)
		if !ok {
			return fmt.Errorf("idemtest: the store has no %s: %w", method, errors.ErrUnsupported)
		}
		got, err := get(ctx, s)
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

// write makes a call that has no answer.
func write[S, W any](
	ctx context.Context, i *intercepted, method, id string,
	do func(S, context.Context, time.Time, W) error, now time.Time, w W,
) error {
	_, err := over(ctx, i, method, id, func(ctx context.Context, s S) (struct{}, error) {
		return struct{}{}, do(s, ctx, now, w)
	})
	return err
}

// read asks for one thing.
func read[S, Q, T any](
	ctx context.Context, i *intercepted, method, id string, get func(S, context.Context, Q) (T, error), q Q,
) (T, error) {
	return over(ctx, i, method, id, func(ctx context.Context, s S) (T, error) { return get(s, ctx, q) })
}

func (i *intercepted) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	return write(ctx, i, "Acquire", c.Record.ID, protocol.Store.Acquire, now, c)
}

func (i *intercepted) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	return write(ctx, i, "Withdraw", w.Claim.Record.ID, protocol.Store.Withdraw, now, w)
}

func (i *intercepted) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	return write(ctx, i, "Extend", e.ID, protocol.Store.Extend, now, e)
}

func (i *intercepted) RecordStep(ctx context.Context, now time.Time, s protocol.StepWrite) error {
	return write(ctx, i, "RecordStep", s.ID, protocol.Store.RecordStep, now, s)
}

func (i *intercepted) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	return write(ctx, i, "RecordReference", r.ID, protocol.Store.RecordReference, now, r)
}

func (i *intercepted) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	return write(ctx, i, "Finish", f.ID, protocol.Store.Finish, now, f)
}

func (i *intercepted) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	return write(ctx, i, "Settle", s.ID, protocol.Store.Settle, now, s)
}

func (i *intercepted) Get(ctx context.Context, id string) (*protocol.Record, error) {
	return read(ctx, i, "Get", id, protocol.Store.Get, id)
}

func (i *intercepted) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	return read(ctx, i, "Result", idOf(rec), protocol.Store.Result, rec)
}

func (i *intercepted) StepResult(ctx context.Context, rec *protocol.Record, name string) ([]byte, error) {
	return over(ctx, i, "StepResult", idOf(rec), func(ctx context.Context, s protocol.Store) ([]byte, error) {
		return s.StepResult(ctx, rec, name)
	})
}

func idOf(rec *protocol.Record) string {
	if rec == nil {
		return ""
	}
	return rec.ID
}

func (i *intercepted) Due(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
	return read(ctx, i, "Due", "", protocol.AdminStore.Due, q)
}

func (i *intercepted) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	return write(ctx, i, "Postpone", p.ID, protocol.AdminStore.Postpone, now, p)
}

func (i *intercepted) Forget(ctx context.Context, now time.Time, e protocol.Erasure) error {
	return write(ctx, i, "Forget", e.ID, protocol.AdminStore.Forget, now, e)
}

func (i *intercepted) Prolong(ctx context.Context, now time.Time, w protocol.Prolongation) error {
	return write(ctx, i, "Prolong", w.ID, protocol.AdminStore.Prolong, now, w)
}

func (i *intercepted) AuditOf(ctx context.Context, id, page string) (protocol.AuditPage, error) {
	return over(ctx, i, "AuditOf", id, func(ctx context.Context, s protocol.AdminStore) (protocol.AuditPage, error) {
		return s.AuditOf(ctx, id, page)
	})
}

func (i *intercepted) AuditBetween(
	ctx context.Context, shard int, from, to time.Time, page string,
) (protocol.AuditPage, error) {
	return over(ctx, i, "AuditBetween", "", func(ctx context.Context, s protocol.AdminStore) (protocol.AuditPage, error) {
		return s.AuditBetween(ctx, shard, from, to, page)
	})
}

func (i *intercepted) Scan(ctx context.Context, q protocol.ScanQuery) (protocol.ScanPage, error) {
	return read(ctx, i, "Scan", "", protocol.Scanner.Scan, q)
}

func (i *intercepted) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	return over(ctx, i, "ReadPaused", "", func(ctx context.Context, s pausing) (protocol.Paused, error) {
		return s.ReadPaused(ctx)
	})
}

func (i *intercepted) WritePaused(ctx context.Context, w protocol.PausedWrite) error {
	_, err := over(ctx, i, "WritePaused", "", func(ctx context.Context, s pausing) (struct{}, error) {
		return struct{}{}, s.WritePaused(ctx, w)
	})
	return err
}

// CountKey implements limit.Counter over a store that does.
func (i *intercepted) CountKey(ctx context.Context, counter string, bound int, expires time.Time) (bool, error) {
	type counts interface {
		CountKey(ctx context.Context, counter string, bound int, expires time.Time) (bool, error)
	}
	return over(ctx, i, "CountKey", "", func(ctx context.Context, s counts) (bool, error) {
		return s.CountKey(ctx, counter, bound, expires)
	})
}
