package main

import (
	"context"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type forgetCmd struct {
	recordFlags
	changeFlags
}

func (c *forgetCmd) Run(ctx context.Context, s *session) error {
	r, b, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	d := decision{to: idem.Absent}
	d.prepare = func(rec *idem.Record, x reconcile.Decision) (action, error) {
		forget := func(ctx context.Context, by reconcile.Change) error { return r.Forget(ctx, rec.ID, by) }
		return action{then: x.Then, caution: x.Caution, do: forget}, d.refused(x)
	}
	return s.decide(ctx, r, b, c.recordFlags, c.changeFlags, d)
}
