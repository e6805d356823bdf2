package pgstore_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/testenv/outage"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// Whenever the server is killed, also between a commit and its reply: an order is there once if its caller has an
// outcome or will get one, and not at all otherwise. Its message is sent then, and only then. A handler that is not
// repeatable runs once: that of another one may run again, and what it wrote before has not committed.
func TestKilledServers(t *testing.T) {
	server := postgres.Start(t, "fsync=on", "synchronous_commit=on")
	s := newShop(t, server.URL())
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE runs (id text NOT NULL, at timestamptz DEFAULT now())")
	require.NoError(t, err)
	s.engine, err = idem.New(s.store, &idem.Options{Observer: func(context.Context, notice.Notice) {}})
	require.NoError(t, err)
	var ran sync.Map // by order
	s.handler = func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
		n, _ := ran.LoadOrStore(order, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		_, err := tx.Exec(ctx, "INSERT INTO runs (id) VALUES ($1)", order)
		m := outbox.Message{Destination: "orders", Body: []byte(order)}
		return "ordered " + order, errors.Join(err, tx.Publish("placed", m))
	}
	var sent sync.Map // by order
	relay, err := outbox.NewRelay(s.store.Outbox(), map[string]outbox.Sender{"orders": sending(func(m outbox.Message) {
		sent.Store(string(m.Body), m.ID)
	})}, nil)
	require.NoError(t, err)
	polling, stop := context.WithCancel(t.Context())
	defer stop()
	var polls sync.WaitGroup
	polls.Go(func() { relay.Poll(polling, 20*time.Millisecond, nil) })
	opOf := func(id string) idem.Operation {
		n, err := strconv.Atoi(id)
		require.NoError(t, err)
		return []idem.Operation{order, atomicOrder, {Name: "repeated", Repeat: idem.Repeatable}}[n%3]
	}
	orders := outage.WhileKilled(t, server, func(id string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return idem.Do(ctx, s.engine, opOf(id).Key("acme", id), id, pgstore.Transact(s.store, s.handler))
	})

	s.pool.Reset() // its connections to servers that were killed
	require.Eventually(t, func() bool { return s.engine.Flush(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		var waiting bool
		const any = "SELECT EXISTS (SELECT FROM idem_outbox WHERE state <> 'dispatched')"
		err := s.pool.QueryRow(t.Context(), any).Scan(&waiting)
		return err == nil && !waiting
	}, time.Minute, 100*time.Millisecond)
	stop()
	polls.Wait()
	orders.Require(t, func(id string) idem.State {
		op, state, want := opOf(id), idem.Absent, 0
		rec, err := s.store.Get(t.Context(), op.Key("acme", id).ID())
		require.NoError(t, err)
		if rec != nil {
			state = rec.State
		}
		if state == idem.Completed {
			want = 1
		}
		var rows int
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT count(*) FROM runs WHERE id = $1", id).Scan(&rows))
		require.Equal(t, want, rows, "order %s, %s of %q", id, state, op.Name)
		if n, ok := ran.Load(id); ok && op.Repeat == idem.NotRepeatable {
			require.EqualValues(t, 1, n.(*atomic.Int64).Load(), "order %s of %q", id, op.Name)
		}
		_, was := sent.Load(id)
		require.Equal(t, want == 1, was, "message of order %s, %s of %q", id, state, op.Name)
		return state
	})
}

// sending is a sender that takes each message.
type sending func(outbox.Message)

func (f sending) Send(_ context.Context, messages []outbox.Message) []outbox.Sent {
	for _, m := range messages {
		f(m)
	}
	return make([]outbox.Sent, len(messages))
}
