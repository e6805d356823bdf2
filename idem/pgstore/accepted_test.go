package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// Work is accepted with the message that brings its worker, or not at all. The worker's rows commit with its outcome.
func TestWorkIsAcceptedWithItsMessage(t *testing.T) {
	s := newShop(t, postgres.Start(t).Database(t))
	ctx, key := t.Context(), order.Key("acme", "a")
	var refusal error
	enqueue := pgstore.Transact(s.store, func(_ context.Context, tx *pgstore.Tx, id string) (any, error) {
		return nil, errors.Join(tx.Publish("work", outbox.Message{Destination: "work", Body: []byte(id)}), refusal)
	})
	accept := func() (idem.Result[string], error) {
		return later.Accept[string](ctx, s.engine, key, "a", func(ctx context.Context, id string) error {
			_, err := enqueue(ctx, id)
			return err
		})
	}
	messages := func() (n int) {
		t.Helper()
		require.NoError(t, s.pool.QueryRow(ctx, "SELECT count(*) FROM idem_outbox").Scan(&n))
		return n
	}

	refusal = errors.New("not now")
	_, err := accept()
	require.ErrorIs(t, err, refusal)
	require.Zero(t, messages())
	refusal = nil
	for range 2 {
		got, err := accept()
		require.NoError(t, err)
		require.Equal(t, idem.Pending, got.Outcome.RecordState)
		require.Equal(t, 1, messages())
	}

	ids := make(chan string, 1)
	relay, err := outbox.NewRelay(s.store.Outbox(), map[string]outbox.Sender{"work": sending(func(m outbox.Message) {
		ids <- string(m.Body)
	})}, nil)
	require.NoError(t, err)
	go relay.Poll(ctx, 10*time.Millisecond, nil)
	var id string
	select {
	case id = <-ids:
	case <-time.After(time.Minute):
		t.Fatal("the relay has sent nothing")
	}
	require.Equal(t, key.ID(), id)
	for range 2 { // a message may come twice
		done, err := later.Work(ctx, s.engine, order, id, pgstore.Transact(s.store, insert))
		require.NoError(t, err)
		require.Equal(t, "ordered a", done.Value)
	}
	require.True(t, s.has("a"))
	ended, err := accept()
	require.NoError(t, err)
	require.Equal(t, "ordered a", ended.Value)
}
