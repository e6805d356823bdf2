package idemtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// questions is the store's other half, or one that refuses everything.
func questions(store protocol.Store) protocol.Questions {
	if q, ok := store.(protocol.Questions); ok {
		return q
	}
	return unasked{}
}

// Due lists what is due; see [protocol.Questions]. Like the methods below it is refused
// with errors.ErrUnsupported over a store without it.
func (f *Faults) Due(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
	return read(ctx, f, Due, "", func(ctx context.Context) (protocol.DuePage, error) { return questions(f.store).Due(ctx, q) })
}

// Postpone writes when a record is due next; see [protocol.Questions].
func (f *Faults) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	return f.call(ctx, Postpone, p.ID, func(ctx context.Context) error { return questions(f.store).Postpone(ctx, now, p) })
}

// Forget removes a record; see [protocol.Questions].
func (f *Faults) Forget(ctx context.Context, now time.Time, e protocol.Erasure) error {
	return f.call(ctx, Forget, e.ID, func(ctx context.Context) error { return questions(f.store).Forget(ctx, now, e) })
}

// Prolong keeps a record that has ended for longer; see [protocol.Questions].
func (f *Faults) Prolong(ctx context.Context, now time.Time, w protocol.Prolongation) error {
	return f.call(ctx, Prolong, w.ID, func(ctx context.Context) error { return questions(f.store).Prolong(ctx, now, w) })
}

// AuditOf lists changes of a record; see [protocol.Questions].
func (f *Faults) AuditOf(ctx context.Context, id, page string) (protocol.AuditPage, error) {
	return read(ctx, f, AuditOf, id, func(ctx context.Context) (protocol.AuditPage, error) {
		return questions(f.store).AuditOf(ctx, id, page)
	})
}

// AuditBetween lists changes of all records; see [protocol.Questions].
func (f *Faults) AuditBetween(ctx context.Context, shard int, from, to time.Time, page string) (protocol.AuditPage, error) {
	return read(ctx, f, AuditBetween, "", func(ctx context.Context) (protocol.AuditPage, error) {
		return questions(f.store).AuditBetween(ctx, shard, from, to, page)
	})
}

// Scan lists all records; see [protocol.Scanner].
func (f *Faults) Scan(ctx context.Context, q protocol.ScanQuery) (protocol.ScanPage, error) {
	return read(ctx, f, Scan, "", func(ctx context.Context) (protocol.ScanPage, error) {
		if s, ok := f.store.(protocol.Scanner); ok {
			return s.Scan(ctx, q)
		}
		return protocol.ScanPage{}, errUnscanned
	})
}

func (p *process) Due(ctx context.Context, q protocol.DueQuery) (page protocol.DuePage, err error) {
	err = p.call(func() (err error) {
		page, err = questions(p.store).Due(ctx, q)
		return err
	})
	return page, err
}

func (p *process) Postpone(ctx context.Context, now time.Time, w protocol.Postponement) error {
	return p.call(func() error { return questions(p.store).Postpone(ctx, now, w) })
}

func (p *process) Forget(ctx context.Context, now time.Time, e protocol.Erasure) error {
	return p.call(func() error { return questions(p.store).Forget(ctx, now, e) })
}

func (p *process) Prolong(ctx context.Context, now time.Time, w protocol.Prolongation) error {
	return p.call(func() error { return questions(p.store).Prolong(ctx, now, w) })
}

func (p *process) AuditOf(ctx context.Context, id, name string) (page protocol.AuditPage, err error) {
	err = p.call(func() (err error) {
		page, err = questions(p.store).AuditOf(ctx, id, name)
		return err
	})
	return page, err
}

func (p *process) AuditBetween(ctx context.Context, shard int, from, to time.Time, name string) (page protocol.AuditPage, err error) {
	err = p.call(func() (err error) {
		page, err = questions(p.store).AuditBetween(ctx, shard, from, to, name)
		return err
	})
	return page, err
}

// unasked is what a store without questions is taken for.
type unasked struct{}

var errUnscanned = fmt.Errorf("idemtest: the store lists no records: %w", errors.ErrUnsupported)

var errUnasked = fmt.Errorf("idemtest: the store keeps no questions: %w", errors.ErrUnsupported)

func (unasked) Due(context.Context, protocol.DueQuery) (protocol.DuePage, error) {
	return protocol.DuePage{}, errUnasked
}
func (unasked) Postpone(context.Context, time.Time, protocol.Postponement) error { return errUnasked }
func (unasked) Forget(context.Context, time.Time, protocol.Erasure) error        { return errUnasked }
func (unasked) Prolong(context.Context, time.Time, protocol.Prolongation) error  { return errUnasked }
func (unasked) AuditOf(context.Context, string, string) (protocol.AuditPage, error) {
	return protocol.AuditPage{}, errUnasked
}
func (unasked) AuditBetween(context.Context, int, time.Time, time.Time, string) (protocol.AuditPage, error) {
	return protocol.AuditPage{}, errUnasked
}
