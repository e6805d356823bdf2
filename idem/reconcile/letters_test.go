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
	fails map[int]error // by how many have been noted
}

func (l *lettered) Requeue(ctx context.Context, _ *outbox.Entry, a protocol.Audit) error {
	return l.Note(ctx, a)
}

func (l *lettered) Note(ctx context.Context, a protocol.Audit) error {
	if err := errors.Join(ctx.Err(), l.fails[len(l.noted)]); err != nil {
		return err
	}
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

func TestAReplayIsNotedBeforeAndAfterIt(t *testing.T) {
	r := newRig(t)
	broken, stopped := errors.New("no table"), errors.New("stopped")
	replay := func(l *lettered, ended error) (sent bool, err error) {
		l.Store = r.Faults
		rc, err := reconcile.New(l, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		err = rc.Replay(ctx, "https://sqs/dead", "at most 5 messages", alice, func(context.Context) (string, error) {
			sent = true
			cancel() // Ctrl-C does not leave the entry unconfirmed
			return "2 messages", ended
		})
		return sent, err
	}
	for _, ended := range []error{nil, stopped} {
		l := &lettered{}
		sent, err := replay(l, ended)
		require.ErrorIs(t, err, ended)
		require.True(t, sent)
		require.Len(t, l.noted, 2)
		planned, done := l.noted[0], l.noted[1]
		require.Equal(t, "at most 5 messages", planned.What)
		require.True(t, planned.Unconfirmed)
		planned.What, planned.Unconfirmed = "2 messages", false
		require.Equal(t, planned, done)
	}
	sent, err := replay(&lettered{fails: map[int]error{0: broken}}, nil)
	require.ErrorIs(t, err, broken)
	require.False(t, sent, "nobody would know who has sent it")
	sent, err = replay(&lettered{fails: map[int]error{1: broken}}, nil)
	require.ErrorContains(t, err, "unconfirmed")
	require.True(t, sent)
}
