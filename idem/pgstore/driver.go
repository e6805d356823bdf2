package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// driver implements [casstore.Driver].
type driver struct{ pool *pgxpool.Pool }

// Each change is one statement, which Postgres makes whole or not at all, and which returns the row that was in its
// way. If another transaction has made that row in the same moment, the statement does not see it, and a read does.
const (
	insertRow = `INSERT INTO idem_rows (id, version, data, body, shard, due, expires)
	SELECT $1, $3, $4, $5, $6, $7, $8 WHERE $2::bigint = 0 ON CONFLICT (id) DO NOTHING RETURNING 1`
	updateRow = `UPDATE idem_rows SET version = $3, data = $4, body = $5, shard = $6, due = $7, expires = $8
	WHERE id = $1 AND version = $2 RETURNING 1`
	deleteRow = `DELETE FROM idem_rows WHERE id = $1 AND version = $2 RETURNING 1`

	putParts = `, put AS (INSERT INTO idem_parts (id, name, data) SELECT $1, p.name, p.data
	FROM unnest($9::text[], $10::bytea[]) AS p(name, data) WHERE EXISTS (TABLE w) ON CONFLICT DO NOTHING)
, dropped AS (DELETE FROM idem_parts WHERE id = $1 AND name = ANY ($11::text[]) AND EXISTS (TABLE w))`
	allParts    = `, dropped AS (DELETE FROM idem_parts WHERE id = $1 AND EXISTS (TABLE w))`
	addMessages = `, box AS (INSERT INTO idem_outbox
	(record, id, number, created, destination, ordering_key, head, body, state, lane)
	SELECT $1, m.id, m.n - 1, $%d, m.destination, m.ordering_key, m.head, m.body, 'new', '` + live + `'
	FROM unnest($%d::text[], $%d::text[], $%d::text[], $%d::text[], $%d::bytea[])
	WITH ORDINALITY AS m(id, destination, ordering_key, head, body, n) WHERE EXISTS (TABLE w))`
	addEntry = `, entry AS (INSERT INTO idem_changes (id, name, at, shard, expires, data)
	SELECT $%d, $%d, $%d, $%d, $%d, $%d WHERE EXISTS (TABLE w) ON CONFLICT DO NOTHING)`

	met = `
SELECT EXISTS (TABLE w), r.version, r.data, r.body FROM (SELECT) AS one
LEFT JOIN idem_rows AS r ON r.id = $1 AND NOT EXISTS (TABLE w)`
)

// statement is what makes the change, and keeps the messages with it.
func statement(c *casstore.Change, messages []*outbox.Entry) (sql string, args []any) {
	args = []any{c.Row.ID, c.Seen}
	if c.Row.Data == nil {
		sql = "WITH w AS (" + deleteRow + ")" + allParts
	} else {
		sql = "WITH w AS (" + updateRow + ")"
		if c.Seen == 0 {
			sql = "WITH w AS (" + insertRow + ")"
		}
		args = append(args, c.Row.Version, string(c.Row.Data), c.Row.Body, c.Shard, millis(c.Due), seconds(c.Expires))
		if len(c.Put)+len(c.Drop) > 0 {
			var names []string
			var data [][]byte
			for name, part := range c.Put {
				names, data = append(names, name), append(data, part)
			}
			sql += putParts
			args = append(args, names, data, c.Drop)
		}
	}
	if e := c.Entry; e != nil {
		n := len(args)
		sql += fmt.Sprintf(addEntry, n+1, n+2, n+3, n+4, n+5, n+6)
		args = append(args, e.ID, e.Name, millis(e.At), e.Shard, seconds(e.Expires), string(e.Data))
	}
	if len(messages) > 0 {
		n := len(args)
		sql += fmt.Sprintf(addMessages, n+1, n+2, n+3, n+4, n+5, n+6)
		args = append(args, values(messages)...)
	}
	return sql + met, args
}

// querier is a connection, or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// change makes the change. known is false if a row is in its way which the statement has not seen.
func change(ctx context.Context, on querier, c *casstore.Change, messages ...*outbox.Entry) (
	row casstore.Row, written, known bool, err error) {
	sql, args := statement(c, messages)
	var version *int64
	if err := on.QueryRow(ctx, sql, args...).Scan(&written, &version, &row.Data, &row.Body); err != nil {
		return casstore.Row{}, false, false, err
	}
	if version != nil {
		row.ID, row.Version = c.Row.ID, *version
	}
	// A row in the way of an insert that is not there, or one with the very version, was written in the same moment.
	return row, written, written || row.Version != c.Seen, nil
}

func (d driver) Write(ctx context.Context, c casstore.Change) (row casstore.Row, written bool, err error) {
	if c.Unit != nil {
		u, ok := c.Unit.(*unit)
		switch {
		case !ok:
			return row, false, fmt.Errorf("pgstore: a %T cannot commit in Postgres: %w", c.Unit, errors.ErrUnsupported)
		case u.store.driver.pool != d.pool:
			return row, false, fmt.Errorf("pgstore: the transaction is of another pool than the engine's store: use one pool "+
				"for both: %w", errors.ErrUnsupported)
		}
		return u.commit(ctx, &c)
	}
	conn, err := d.acquire(ctx)
	if err != nil {
		return row, false, err
	}
	defer conn.Release()
	row, written, known, err := change(ctx, conn, &c)
	if err != nil {
		return row, false, failed(err, true)
	}
	if !known {
		row, err = read(ctx, conn, c.Row.ID)
	}
	return row, written, err
}

// acquire takes a connection. The server is down if it cannot be dialled, and not if others hold all connections of
// the pool, or if there are no credentials for one.
func (d driver) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := d.pool.Acquire(ctx)
	if err == nil {
		return conn, nil
	}
	_, dialled := errors.AsType[*pgconn.ConnectError](err)
	if pool := d.pool.Stat(); ctx.Err() != nil {
		dialled = pool.ConstructingConns() > 0 || pool.TotalConns() < pool.MaxConns()
	}
	if !dialled {
		return nil, &protocol.StoreError{Err: err}
	}
	return nil, failed(err, false)
}

func (d driver) Read(ctx context.Context, id string) (row casstore.Row, err error) {
	err = d.on(ctx, func(conn *pgxpool.Conn) error {
		row, err = read(ctx, conn, id)
		return err
	})
	return row, err
}

// on makes a call that changes nothing.
func (d driver) on(ctx context.Context, call func(*pgxpool.Conn) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := call(conn); err != nil {
		return failed(err, false)
	}
	return nil
}

func read(ctx context.Context, on querier, id string) (row casstore.Row, err error) {
	switch err = on.QueryRow(ctx, `SELECT version, data, body FROM idem_rows WHERE id = $1`, id).
		Scan(&row.Version, &row.Data, &row.Body); {
	case errors.Is(err, pgx.ErrNoRows):
		return casstore.Row{}, nil
	case err != nil:
		return row, failed(err, false)
	}
	row.ID = id
	return row, nil
}

func (d driver) Part(ctx context.Context, id, name string) (data []byte, err error) {
	err = d.on(ctx, func(conn *pgxpool.Conn) error {
		err := conn.QueryRow(ctx, `SELECT data FROM idem_parts WHERE id = $1 AND name = $2`, id, name).Scan(&data)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return data, err
}

func (d driver) Due(ctx context.Context, shard int, until time.Time, after *casstore.Place, limit int) (
	all []casstore.Place, err error) {
	if after == nil {
		after = &casstore.Place{Due: time.UnixMilli(-1)}
	}
	err = d.rows(ctx, func(rows pgx.Rows) error {
		var due int64
		var at casstore.Place
		err := rows.Scan(&at.ID, &due)
		at.Due = time.UnixMilli(due).UTC()
		all = append(all, at)
		return err
	}, `SELECT id, due FROM idem_rows WHERE shard = $1 AND due <= $2 AND (due, id) > ($3, $4) ORDER BY due, id LIMIT $5`,
		shard, until.UnixMilli(), after.Due.UnixMilli(), after.ID, limit)
	return all, err
}

// rows reads the rows of a statement.
func (d driver) rows(ctx context.Context, next func(pgx.Rows) error, sql string, args ...any) error {
	return d.on(ctx, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := next(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

func (d driver) Scan(ctx context.Context, segment, segments int, after string, limit int) (
	all []casstore.Row, next string, err error) {
	err = d.rows(ctx, func(rows pgx.Rows) error {
		var row casstore.Row
		err := rows.Scan(&row.ID, &row.Version, &row.Data, &row.Body)
		all = append(all, row)
		return err
	}, `SELECT id, version, data, body FROM idem_rows
	WHERE id > $1 AND ($3 = 1 OR mod(hashtext(id)::bigint + 2147483648, $3) = $2) ORDER BY id LIMIT $4`,
		after, segment, segments, limit)
	if len(all) == limit {
		next = all[limit-1].ID
	}
	return all, next, err
}

func (d driver) Entries(ctx context.Context, q casstore.EntryQuery) (all []casstore.Entry, next string, err error) {
	after, id, name := int64(-1), "", ""
	if q.Page != "" {
		if after, id, name, err = entryPlace(q.Page); err != nil {
			return nil, "", err
		}
	}
	where, of, until := `id = $1 AND at < $5`, any(q.ID), int64(1)<<62
	if q.ID == "" {
		where, of, until, after = `shard = $1 AND at < $5`, q.Shard, millisOf(q.To), max(after, millisOf(q.From)-1)
		if q.Page == "" {
			id = "\uffff" // behind all of the millisecond before
		}
	}
	err = d.rows(ctx, func(rows pgx.Rows) error {
		var at int64
		var e casstore.Entry
		err := rows.Scan(&e.ID, &e.Name, &at, &e.Data)
		e.At = time.UnixMilli(at).UTC()
		all = append(all, e)
		return err
	}, `SELECT id, name, at, data FROM idem_changes WHERE `+where+` AND (at, id, name) > ($2, $3, $4)
	ORDER BY at, id, name LIMIT $6`, of, after, id, name, until, q.Limit)
	if len(all) == q.Limit {
		last := all[q.Limit-1]
		next = placeName(last.At.UnixMilli(), last.ID, last.Name)
	}
	return all, next, err
}

func (d driver) RemoveExpired(ctx context.Context, before time.Time, limit int) (n int, err error) {
	err = d.on(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `WITH gone AS (DELETE FROM idem_rows WHERE id IN (SELECT id FROM idem_rows
	WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id)
, parts AS (DELETE FROM idem_parts USING gone WHERE idem_parts.id = gone.id)
, entries AS (DELETE FROM idem_changes WHERE (id, name) IN (SELECT id, name FROM idem_changes
	WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id)
, messages AS (DELETE FROM idem_outbox WHERE (record, id) IN (SELECT record, id FROM idem_outbox
	WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM entries) + (SELECT count(*) FROM messages)`,
			before.Unix(), limit).Scan(&n)
	})
	return n, err
}

// millis and seconds are times as they are stored; nil for none.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

func seconds(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	s := t.Unix()
	return &s
}

// failed says what an error means: whether a change may have been made, and whether the server works. write says that
// the call would have made one.
func failed(err error, write bool) error {
	if _, ok := errors.AsType[*protocol.StoreError](err); ok {
		return err
	}
	out := &protocol.StoreError{Err: err}
	answer, answered := errors.AsType[*pgconn.PgError](err)
	if !answered {
		out.Down = true
		out.Ambiguous = write && !pgconn.SafeToRetry(err)
		return out
	}
	switch class := answer.Code[:2]; {
	case answer.Code == "40003": // it is not known what became of the statement
		out.Down, out.Ambiguous = true, write
	case class == "40", class == "53", class == "55": // a conflict, no room, a lock
		out.Down, out.Throttled = true, true
	case answer.Code == "57014", answer.Code == "57P03", answer.Code == "25006":
		out.Down = true // cancelled, or not begun: the server starts, or only reads after a failover
	case class == "57", class == "08": // shut down, or the connection ended
		out.Down, out.Ambiguous = true, write
	case class == "58", class == "XX": // the system, or a fault in the server
		out.Ambiguous = write
	}
	// An error that ends the session may come from a proxy, which does not know how the statement ended.
	severity := cmp.Or(answer.SeverityUnlocalized, answer.Severity)
	out.Ambiguous = out.Ambiguous || write && (severity == "FATAL" || severity == "PANIC")
	return out
}
