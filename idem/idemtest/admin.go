package idemtest

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

func (i *intercepted) Due(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
	return over(ctx, i, Due, "", func(ctx context.Context, s protocol.AdminStore) (protocol.DuePage, error) {
		return s.Due(ctx, q)
	})
}

func (i *intercepted) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	return ask(ctx, i, Postpone, p.ID, func(ctx context.Context, s protocol.AdminStore) error {
		return s.Postpone(ctx, now, p)
	})
}

func (i *intercepted) Forget(ctx context.Context, now time.Time, e protocol.Erasure) error {
	return ask(ctx, i, Forget, e.ID, func(ctx context.Context, s protocol.AdminStore) error {
		return s.Forget(ctx, now, e)
	})
}

func (i *intercepted) Prolong(ctx context.Context, now time.Time, w protocol.Prolongation) error {
	return ask(ctx, i, Prolong, w.ID, func(ctx context.Context, s protocol.AdminStore) error {
		return s.Prolong(ctx, now, w)
	})
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
