package reconcile_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// lettered is a store that has an outbox.
type lettered struct {
	reconcile.Store
	noted []protocol.Audit
}

func (l *lettered) Requeue(_ context.Context, _ *outbox.Entry, a protocol.Audit) error {
	l.noted = append(l.noted, a)
	return nil
}

func TestWhoHasADeadLetterSentAgainIsKept(t *testing.T) {
	r := newRig(t)
	l := &lettered{Store: r.Faults}
	rc, err := reconcile.New(l, nil)
	require.NoError(t, err)
	e := &outbox.Entry{Record: "acme#refund#1", Message: outbox.Message{ID: "m-1", Destination: "orders"}}
	require.NoError(t, rc.Requeue(t.Context(), e, alice))
	a := l.noted[0]
	require.Equal(t, []string{"acme#refund#1", alice.Actor, alice.Reason, "message m-1 to orders"}, []string{a.ID, a.Who, a.Why, a.What})
	require.Equal(t, protocol.ChangeRequeued, a.Change)
	require.False(t, a.ExpiresAt.IsZero())

	var mistake *idem.ConfigError
	require.ErrorAs(t, rc.Requeue(t.Context(), e, reconcile.Change{Actor: "alice"}), &mistake)
	require.ErrorIs(t, r.reconciler().Requeue(t.Context(), e, alice), errors.ErrUnsupported, "a store without an outbox")
}
