package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/internal/publish"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Tx is the transaction of an attempt. What is written in it commits with the operation's outcome, or not at all. It
// is for one goroutine at a time.
type Tx struct {
	pgx.Tx
	unit *unit
}

var errEnds = errors.New("pgstore: the store ends the transaction: return a result to commit it, or an error to roll " +
	"it back")

// Commit is not for handlers: it returns an error.
func (*Tx) Commit(context.Context) error { return errEnds }

// Rollback is not for handlers: it returns an error.
func (*Tx) Rollback(context.Context) error { return errEnds }

// rollbackTime bounds how long a rollback waits: the server makes it by itself when the connection ends.
const rollbackTime = time.Second

// unit is a transaction as a unit of work of the engine.
type unit struct {
	store *Store

	mu       sync.Mutex
	sealed   bool
	tx       pgx.Tx
	messages publish.List
	mistake  error // the first one
}

// Transact turns a function that takes its transaction as an argument into a handler for [idem.Do] and for every
// wrapper of such a handler. The transaction is read committed, and begins with the function. What it writes commits
// together with the outcome: the store commits it once the function has returned a result, and rolls it back when
// the function returns an error, answers with a refusal such as HTTP 402, or calls [idem.Abort]. In shadow the
// function does not run, and the error says so.
//
// It may be called within a handler, such as one under the middleware of idemhttp. Then the transaction commits with
// that handler's outcome: that the function has returned a result says nothing yet, and an answer of 400 or more rolls
// it back. Outside an operation it panics: put the route under the middleware, or call it by [idem.Do].
//
// The transaction holds a connection until the outcome is recorded. A statement that fails makes Postgres refuse all
// later ones of the transaction, and its commit.
func Transact[In, Out any](s *Store,
	fn func(context.Context, *Tx, In) (Out, error)) func(context.Context, In) (Out, error) {
	if s == nil || fn == nil {
		return nil
	}
	return func(ctx context.Context, in In) (out Out, err error) {
		u, err := idem.UnitOf(ctx, func() idem.Unit { return &unit{store: s} })
		if err != nil {
			if errors.Is(err, errors.ErrUnsupported) {
				return out, idem.NotExecuted(err)
			}
			panic("pgstore.Transact: " + err.Error() + "; under idemhttp, declare the route's operation")
		}
		own, ok := u.(*unit)
		if !ok || own.store != s {
			panic("pgstore.Transact: the attempt already has a unit of work of another store")
		}
		tx, err := own.begin(ctx)
		if err != nil {
			return out, idem.NotExecuted(err)
		}
		return fn(ctx, &Tx{tx, own}, in)
	}
}

// begin returns the transaction, which the first call begins.
func (u *unit) begin(ctx context.Context) (pgx.Tx, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sealed {
		return nil, errSealed
	}
	if u.tx != nil {
		return u.tx, nil
	}
	tx, err := u.store.driver.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("pgstore: the transaction cannot begin: %w", failed(err, false))
	}
	u.tx = tx
	return tx, nil
}

// maxMessages bounds the messages of a transaction: each has the ids of those before it in its order.
const maxMessages = 250

// Publish adds a message to the outbox, which a relay sends once the transaction has committed. The name tells the
// operation's messages apart: it must be the same in every attempt and different for each message; at most 100 bytes.
// The message's id is made from it ([outbox.MessageID]). Messages with one destination and ordering key are sent in the
// order of the calls. A transaction takes 250 messages.
//
// A mistake is an error, and fails the commit too.
func (t *Tx) Publish(name string, m outbox.Message) error {
	u := t.unit
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sealed {
		return errSealed
	}
	err := u.messages.Add(name, m)
	if err == nil && len(u.messages) > maxMessages {
		err = fmt.Errorf("a transaction takes %d messages: split the work", maxMessages)
	}
	if err != nil {
		err = fmt.Errorf("pgstore: Publish: %w", err)
		u.mistake = cmp.Or(u.mistake, err)
	}
	return err
}

var errSealed = errors.New("pgstore: the handler has returned: what comes now commits nowhere")

// Seal implements [idem.Unit].
func (u *unit) Seal() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sealed = true
	return u.tx != nil
}

// Size implements [idem.Unit]: the writes are there already, but not the messages.
func (u *unit) Size() (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.messages {
		n += len(m.Body)
	}
	return n
}

// Drop rolls back what has not committed.
func (u *unit) Drop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tx != nil {
		u.end()
	}
}

// end gives the connection back, if need be without the server's answer.
func (u *unit) end() {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTime)
	defer cancel()
	_ = u.tx.Rollback(ctx) // after a commit it does nothing
	u.tx = nil
}

// commit makes the change in the transaction, and commits that.
func (u *unit) commit(ctx context.Context, c *casstore.Change) (row casstore.Row, written bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tx == nil {
		if row, err = u.store.driver.Read(ctx, c.Row.ID); err == nil && row.Version == c.Seen {
			err = &protocol.StoreError{Err: errors.New("the transaction has ended, and cannot be sent again")}
		}
		return row, false, err
	}
	if u.mistake != nil {
		defer u.end()
		return row, false, &protocol.RefusedError{Err: u.mistake}
	}
	row, written, known, err := change(ctx, u.tx, c, u.messages.Entries(c.Row.ID, c.Created, c.At)...)
	if err == nil && !known {
		row, err = read(ctx, u.tx, c.Row.ID)
	}
	if err != nil {
		defer u.end()
		return row, false, refusedOr(err, false)
	}
	if !written {
		return row, false, nil
	}
	if err := u.tx.Commit(ctx); err != nil {
		defer u.end()
		return row, false, refusedOr(err, true)
	}
	u.tx = nil
	return row, true, nil
}

// refusedOr says what the failure of a transaction means: Postgres refused it, or it is not known.
func refusedOr(err error, maybe bool) error {
	out, _ := errors.AsType[*protocol.StoreError](failed(err, maybe))
	_, answered := errors.AsType[*pgconn.PgError](err)
	if answered && !out.Ambiguous && (!out.Down || out.Throttled) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return &protocol.RefusedError{Err: fmt.Errorf("pgstore: the transaction was rolled back: %w", err)}
	}
	out.Down = false // the transaction cannot be sent again
	return out
}
