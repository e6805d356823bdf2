package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox/outboxtest"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/testenv/outage"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// shop takes orders: each is a row.
type shop struct {
	t      *testing.T
	store  *pgstore.Store
	pool   *pgxpool.Pool
	engine *idem.Engine
	// handler is what an order does in its transaction.
	handler func(ctx context.Context, tx *pgstore.Tx, order string) (string, error)
}

// patient waits for a server on a busy machine.
var patient = idem.Options{ClaimBudget: 20 * time.Second, FinishBudget: 20 * time.Second}

func newShop(t *testing.T, url string) *shop {
	s := &shop{t: t}
	s.store, s.pool = openURL(t, url)
	_, err := s.pool.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, item text NOT NULL,
		CONSTRAINT one UNIQUE (item) DEFERRABLE INITIALLY DEFERRED)`)
	require.NoError(t, err)
	s.engine, err = idem.New(s.store, &patient)
	require.NoError(t, err)
	s.handler = insert
	return s
}

func insert(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
	_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $1)", order)
	return "ordered " + order, err
}

var (
	order       = idem.Operation{Name: "order"}
	atomicOrder = idem.Operation{Name: "order", Mode: idem.Atomic, Repeat: idem.Repeatable}
)

func (s *shop) order(op idem.Operation, id string) (string, error) {
	return idem.Do(s.t.Context(), s.engine, op.Key("acme", id), id, pgstore.Transact(s.store, s.handler))
}

func (s *shop) has(id string) (there bool) {
	s.t.Helper()
	row := s.pool.QueryRow(s.t.Context(), "SELECT EXISTS (SELECT FROM orders WHERE id = $1)", id)
	require.NoError(s.t, row.Scan(&there))
	return there
}

func (s *shop) state(op idem.Operation, id string) idem.State {
	s.t.Helper()
	rec, err := s.store.Get(s.t.Context(), op.Key("acme", id).ID())
	require.NoError(s.t, err)
	if rec == nil {
		return idem.Absent
	}
	return rec.State
}

// idle checks that no connection is held. The pool closes one that has ended in the background.
func (s *shop) idle() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.pool.Stat().AcquiredConns() == 0 }, 15*time.Second, time.Millisecond)
}

// What a handler writes in its transaction is there if and only if its outcome is.
func TestARowCommitsWithItsOutcome(t *testing.T) { commits(t, "") }

func TestARowCommitsWithItsOutcomeWithoutPreparedStatements(t *testing.T) { commits(t, unprepared) }

func commits(t *testing.T, settings string) {
	s := newShop(t, postgres.Shared(t).Database(t)+settings)
	declined := errors.New("declined")
	for name, c := range map[string]struct {
		handler func(ctx context.Context, tx *pgstore.Tx, order string) (string, error)
		there   bool
		err     error
		state   idem.State // of an operation that takes a claim
	}{
		"completed": {insert, true, nil, idem.Completed},
		"failed": {func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
			_, _ = insert(ctx, tx, order)
			return "", idem.Permanent(declined)
		}, false, declined, idem.Failed},
		"not executed": {func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
			_, _ = insert(ctx, tx, order)
			return "", idem.NotExecuted(declined)
		}, false, declined, idem.Released},
		"aborted": {func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
			_, err := insert(ctx, tx, order)
			idem.SetNotExecuted(ctx)
			return "", errors.Join(err, declined)
		}, false, declined, idem.Released},
		"a statement fails, and its error is lost": {func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return "ordered", nil
		}, false, idem.ErrOutcomeUnknown, idem.Unknown},
		"the commit is refused": {func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
			_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, 'the only one'), ($1 || '2', 'the only one')", order)
			return "ordered", err
		}, false, nil, idem.Unknown},
		"it is no handler's to commit": {func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
			require.Error(t, tx.Commit(ctx))
			require.Error(t, tx.Rollback(ctx))
			return insert(ctx, tx, order)
		}, true, nil, idem.Completed},
	} {
		for mode, op := range map[string]idem.Operation{"reserved": order, "atomic": atomicOrder} {
			t.Run(name+", "+mode, func(t *testing.T) {
				s := *s
				s.t, s.handler = t, c.handler
				id := t.Name()
				_, err := s.order(op, id)
				if c.err != nil && !errors.Is(c.err, idem.ErrOutcomeUnknown) {
					require.ErrorIs(t, err, c.err)
				}
				require.Equal(t, c.there, err == nil)
				require.Equal(t, c.there, s.has(id))
				want := c.state
				if op.Mode == idem.Atomic && want != idem.Completed && want != idem.Failed {
					want = idem.Absent
				}
				require.Equal(t, want, s.state(op, id))
				s.idle()
				if want == idem.Completed {
					s.handler = func(context.Context, *pgstore.Tx, string) (string, error) { panic("a replay runs nothing") }
					again, err := s.order(op, id)
					require.NoError(t, err)
					require.Equal(t, "ordered "+id, again)
				}
			})
		}
	}
}

// A handler that panics leaves no transaction open.
func TestAPanicRollsBack(t *testing.T) {
	s := newShop(t, postgres.Shared(t).Database(t))
	s.handler = func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
		_, _ = insert(ctx, tx, order)
		panic("a mistake")
	}
	require.PanicsWithValue(t, "a mistake", func() { _, _ = s.order(order, "a") })
	require.False(t, s.has("a"))
	require.Equal(t, idem.Unknown, s.state(order, "a"))
	s.idle()
}

// A handler that runs for longer than its lease keeps the claim: the lease is renewed on another connection.
func TestTheLeaseIsRenewedDuringATransaction(t *testing.T) {
	s := newShop(t, postgres.Shared(t).Database(t))
	var err error
	renewed := patient
	renewed.Lease = 12 * time.Second
	s.engine, err = idem.New(s.store, &renewed)
	require.NoError(t, err)
	until := func() time.Time {
		rec, err := s.store.Get(t.Context(), order.Key("acme", "a").ID())
		require.NoError(t, err)
		return rec.LeaseUntil
	}
	s.handler = func(ctx context.Context, tx *pgstore.Tx, id string) (string, error) {
		first := until()
		require.Eventually(t, func() bool { return until().After(first) }, time.Minute, 100*time.Millisecond)
		_, err := s.order(order, id)
		require.ErrorIs(t, err, idem.ErrInFlight)
		return insert(ctx, tx, id)
	}
	_, err = s.order(order, "a")
	require.NoError(t, err)
	require.True(t, s.has("a"))
}

// A commit whose reply is lost is found out: its caller gets the outcome if it has landed, and else an error, and it
// does not land later.
func TestALostCommit(t *testing.T) {
	server := postgres.Shared(t)
	url := server.Database(t)
	p := outage.NewProxy(t, server.Address())
	s := newShop(t, strings.Replace(url, server.Address(), p.Addr().String(), 1))
	for name, fate := range map[string]outage.Fate{"reply lost": outage.LoseReply, "request lost": outage.LoseRequest} {
		for mode, op := range map[string]idem.Operation{"reserved": order, "atomic": atomicOrder} {
			t.Run(name+", "+mode, func(t *testing.T) {
				s := *s
				s.t = t
				id := t.Name()
				runs, landed := 0, fate == outage.LoseReply
				s.handler = func(ctx context.Context, tx *pgstore.Tx, order string) (string, error) {
					runs++
					require.NoError(t, tx.Publish("placed", outboxtest.Order("")))
					return insert(ctx, tx, order)
				}
				p.OnRequest(func(sent string) outage.Fate {
					if strings.Contains(sent, "commit\x00") {
						return fate
					}
					return outage.Pass
				})
				got, err := s.order(op, id)
				p.OnRequest(func(string) outage.Fate { return outage.Pass })
				require.Equal(t, landed, s.has(id))
				require.Equal(t, landed, len(s.messages(op.Key("acme", id).ID())) == 1)
				require.Equal(t, 1, runs)
				if landed {
					require.NoError(t, err)
					require.Equal(t, "ordered "+id, got)
					require.Equal(t, idem.Completed, s.state(op, id))
				} else {
					failed := new(idem.CommitError)
					require.ErrorAs(t, err, &failed)
					require.False(t, failed.Ambiguous)
				}
				s.idle()
			})
		}
	}
}
