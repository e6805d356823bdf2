package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type extendCmd struct {
	recordFlags
	changeFlags
	For   time.Duration `xor:"until" placeholder:"720h" help:"Keep it for this long from now."`
	Until time.Time     `xor:"until" placeholder:"2026-05-01T00:00:00Z" help:"Keep it until then."`
}

func (c *extendCmd) Run(ctx context.Context, s *session) error {
	switch {
	case c.For < 0:
		return misuse("--for is %v: it cannot be negative", c.For)
	case c.For == 0 && c.Until.IsZero():
		return misuse("say until when: --for or --until")
	}
	r, b, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	until := c.Until
	if c.For > 0 {
		until = s.now().Add(c.For)
	}
	return s.confirmed(ctx, r, b, c.recordFlags, c.changeFlags, func(rec *idem.Record, e reconcile.Explanation) (action, error) {
		x := e.Decisions[slices.IndexFunc(e.Decisions, func(x reconcile.Decision) bool { return x.Change == protocol.ChangeExtended })]
		switch {
		case x.Refused != "":
			return action{}, fmt.Errorf("extend is refused, and nothing was changed: %s", x.Refused)
		case !rec.ExpiresAt.Before(until):
			return action{}, fmt.Errorf("there is nothing to do: the record is kept until %s already", view.At(rec.ExpiresAt))
		}
		return action{
			to: rec.State, then: x.Then, what: fmt.Sprintf("extend: the record stays %s, and is kept until %s.", s.aside().state(rec.State), view.At(until)),
			do: func(ctx context.Context, by reconcile.Change) error { return r.Extend(ctx, rec.ID, until, by) },
		}, nil
	})
}
