package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Outbox finds the messages that operations have published in their transactions, and notes what becomes of them:
// the [outbox.Store] of a relay. It is safe for concurrent use.
//
// All messages are in the first of the store's shards: what lists another one makes no call.
type Outbox struct{ driver }

var _ outbox.Store = (*Outbox)(nil)

// Outbox returns the outbox of the store's database. It makes no call.
func (s *Store) Outbox() *Outbox { return &Outbox{s.driver} }

// page is how many messages are listed at a time, of what waits in orders those of so many lanes.
const (
	page  = 100
	lanes = page / outbox.MaxHeld
)

// Load implements [outbox.Store]: a statement for the sizes, and one for what fits.
func (b *Outbox) Load(ctx context.Context, refs []outbox.Ref, size int) (found map[outbox.Ref]*outbox.Entry, read int,
	err error) {
	records, ids := make([]string, len(refs)), make([]string, len(refs))
	for i, ref := range refs {
		records[i], ids[i] = ref.Record, ref.ID
	}
	const wanted = ` FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(record, id, n)
	JOIN idem_outbox AS o USING (record, id)`
	err = b.again(ctx, "Load", func(bool) error {
		found, read = map[outbox.Ref]*outbox.Entry{}, len(refs)
		err := b.rows(ctx, func(rows pgx.Rows) error {
			var n, sum int
			err := rows.Scan(&n, &sum)
			if n > 1 && sum > size {
				read = min(read, n-1)
			}
			return err
		}, `SELECT n, sum(1024 + octet_length(body) + octet_length(head)) OVER (ORDER BY n)`+wanted, records, ids)
		if err != nil {
			return err
		}
		return b.rows(ctx, func(rows pgx.Rows) error {
			e, err := scan(rows)
			if err == nil {
				found[e.Ref()] = e
			}
			return err
		}, `SELECT `+columns+`, body`+wanted, records[:read], ids[:read])
	})
	return found, read, err
}

// Waiting implements [outbox.Store]: a statement for what was left to wait in orders, and one for all else.
func (b *Outbox) Waiting(ctx context.Context, shard int, destination string, before time.Time, cursor string) (
	refs []outbox.Ref, next string, err error) {
	from, err := first(shard, cursor)
	if err != nil || shard > 0 {
		return nil, "", err
	}
	err = b.again(ctx, "Waiting", func(bool) error {
		refs, next, err = b.waiting(ctx, destination, before, from)
		return err
	})
	return refs, next, err
}

// Strays implements [outbox.Store]: a statement for the destinations, and those of Waiting for one of them.
func (b *Outbox) Strays(ctx context.Context, shard int, destinations []string, before time.Time, cursor string) (
	refs []outbox.Ref, next string, err error) {
	of, rest, ok := strings.Cut(cursor, " ")
	from, err := first(shard, rest)
	if cursor != "" && !ok {
		err = noPage(cursor)
	}
	if err != nil || shard > 0 {
		return nil, "", err
	}
	err = b.again(ctx, "Strays", func(bool) error {
		var strays []string
		refs, next = nil, ""
		err := b.rows(ctx, func(rows pgx.Rows) error {
			var name string
			err := rows.Scan(&name)
			if name >= of && !slices.Contains(destinations, name) {
				strays = append(strays, name)
			}
			return err
		}, `WITH RECURSIVE d AS ((SELECT destination FROM idem_outbox WHERE lane IS NOT NULL ORDER BY 1 LIMIT 1)
	UNION ALL SELECT (SELECT o.destination FROM idem_outbox AS o WHERE o.lane IS NOT NULL AND o.destination > d.destination
		ORDER BY 1 LIMIT 1) FROM d WHERE d.destination IS NOT NULL)
SELECT destination FROM d WHERE destination IS NOT NULL ORDER BY 1`)
		if err != nil || len(strays) == 0 {
			return err
		}
		if strays[0] != of {
			from = place{}
		}
		refs, next, err = b.waiting(ctx, strays[0], before, from)
		switch {
		case next != "":
			next = strays[0] + " " + next
		case len(strays) > 1:
			next = strays[1] + " "
		}
		return err
	})
	return refs, next, err
}

// waiting lists what comes after a place.
func (b *Outbox) waiting(ctx context.Context, destination string, before time.Time, from place) (
	refs []outbox.Ref, next string, err error) {
	add := func(rows pgx.Rows) error {
		var ref outbox.Ref
		err := rows.Scan(&ref.Record, &ref.ID, &from.lane, &from.created, &from.number)
		from.id, refs = ref.ID, append(refs, ref)
		return err
	}
	if from.lane < live {
		n, last := 0, ""
		err = b.rows(ctx, func(rows pgx.Rows) error {
			err := add(rows)
			if from.lane != last {
				n, last = n+1, from.lane
			}
			return err
		}, `WITH RECURSIVE l AS ((SELECT lane, 1 AS n FROM idem_outbox
		WHERE destination = $1 AND lane > $2 AND lane < '`+live+`' ORDER BY 1 LIMIT 1)
	UNION ALL SELECT (SELECT o.lane FROM idem_outbox AS o WHERE o.destination = $1 AND o.lane > l.lane
		AND o.lane < '`+live+`' ORDER BY 1 LIMIT 1), n + 1 FROM l WHERE l.lane IS NOT NULL AND n < $3)
SELECT m.record, m.id, m.lane, m.created, m.number FROM l, LATERAL (SELECT * FROM idem_outbox AS o
	WHERE o.destination = $1 AND o.lane = l.lane ORDER BY o.created, o.number, o.id LIMIT $4) AS m
ORDER BY m.lane, m.created, m.number, m.id`, destination, from.lane, lanes, outbox.MaxHeld)
		if err != nil || n == lanes {
			return refs, from.lane, err
		}
		from = place{lane: live}
	}
	held, due := len(refs), before
	if now := time.Now(); now.After(due) {
		due = now
	}
	err = b.rows(ctx, add, `SELECT record, id, lane, created, number FROM idem_outbox
	WHERE destination = $1 AND lane = '`+live+`' AND created <= $2 AND (created, number, id) > ($3, $4, $5)
	AND (ordering_key <> '' OR next_try IS NULL OR next_try <= $6) ORDER BY created, number, id LIMIT $7`,
		destination, before.UnixMilli(), from.created, from.number, from.id, due.UnixMilli(), page)
	if len(refs)-held == page {
		next = from.String()
	}
	return refs, next, err
}

// Held implements [outbox.Store]: one statement.
func (b *Outbox) Held(ctx context.Context, lanes []outbox.Lane) (found map[outbox.Lane][]outbox.Ref, err error) {
	destinations, keys := make([]string, len(lanes)), make([]string, len(lanes))
	for i, l := range lanes {
		destinations[i], keys[i] = l.Destination, laneOf(l.OrderingKey)
	}
	err = b.again(ctx, "Held", func(bool) error {
		found = map[outbox.Lane][]outbox.Ref{}
		return b.rows(ctx, func(rows pgx.Rows) error {
			var n int
			var ref outbox.Ref
			err := rows.Scan(&n, &ref.Record, &ref.ID)
			if err == nil {
				found[lanes[n-1]] = append(found[lanes[n-1]], ref)
			}
			return err
		}, `SELECT l.n, m.record, m.id FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS l(destination, lane, n),
	LATERAL (SELECT * FROM idem_outbox AS o WHERE o.destination = l.destination AND o.lane = l.lane
	ORDER BY o.created, o.number, o.id LIMIT $3) AS m ORDER BY l.n, m.created, m.number, m.id`,
			destinations, keys, outbox.MaxHeld)
	})
	return found, err
}

// HeldAfter implements [outbox.Store]: one statement.
func (b *Outbox) HeldAfter(ctx context.Context, e *outbox.Entry) (refs []outbox.Ref, err error) {
	err = b.again(ctx, "HeldAfter", func(bool) error {
		refs = nil
		return b.rows(ctx, func(rows pgx.Rows) error {
			var ref outbox.Ref
			err := rows.Scan(&ref.Record, &ref.ID)
			refs = append(refs, ref)
			return err
		}, `SELECT record, id FROM idem_outbox WHERE destination = $1 AND lane = $2 AND (created, number, id) > ($3, $4, $5)
	ORDER BY created, number, id LIMIT $6`,
			e.Destination, laneOf(e.OrderingKey), e.Created.UnixMilli(), e.Number, e.ID, outbox.MaxHeld)
	})
	return refs, err
}

// Dead lists the dead letters, all in the first of the shards (0 to 15), the oldest first. The first page is "". It
// returns the next page, which is empty at the end.
func (b *Outbox) Dead(ctx context.Context, shard int, cursor string) (all []*outbox.Entry, next string, err error) {
	from, err := first(shard, cursor)
	if err != nil || shard > 0 {
		return nil, "", err
	}
	err = b.again(ctx, "Dead", func(bool) error {
		all, next = nil, ""
		return b.rows(ctx, func(rows pgx.Rows) error {
			at := place{}
			e, err := scan(rows, &at.created)
			if err == nil {
				all, at.id = append(all, e), e.ID
			}
			if len(all) == page {
				next = at.String()
			}
			return err
		}, `SELECT `+columns+`, body, ended FROM idem_outbox WHERE state = 'dead' AND (ended, id) > ($1, $2)
	ORDER BY ended, id LIMIT $3`, from.created, from.id, page)
	})
	return all, next, err
}

// asRead is the condition that a message is the one that was read, and not to be sent once more. $1 is whether the
// note may have been made already, by an earlier try.
const asRead = ` WHERE record = $2 AND id = $3 AND created = $4 AND resent = $5 AND $1::bool IS NOT NULL AND (`

// Begin implements [outbox.Store].
func (b *Outbox) Begin(ctx context.Context, e *outbox.Entry, tries int, next time.Time) (bool, error) {
	return b.note(ctx, "Begin", e, `SET tries = $6, next_try = $7, state = 'retrying', lane = $8`+asRead+`
	lane IS NOT NULL AND (tries < $6 OR $1 AND state = 'retrying' AND tries = $6 AND next_try = $7))`,
		tries, next.UnixMilli(), laneOf(e.OrderingKey))
}

// Retry implements [outbox.Store].
func (b *Outbox) Retry(ctx context.Context, e *outbox.Entry, tries int, next time.Time, reason string) (bool, error) {
	return b.note(ctx, "Retry", e, `SET tries = $6, next_try = $7, state = 'retrying', lane = $8, reason = $9`+asRead+`
	lane IS NOT NULL AND tries <= $10)`,
		tries, next.UnixMilli(), laneOf(e.OrderingKey), printable(reason), max(tries, e.Tries))
}

// DeadLetter implements [outbox.Store].
func (b *Outbox) DeadLetter(ctx context.Context, now time.Time, e *outbox.Entry, tries int, reason string) (
	bool, error) {
	return b.note(ctx, "DeadLetter", e, `SET tries = $6, reason = $7, state = 'dead', ended = $8, lane = NULL,
	next_try = NULL`+asRead+`
	lane IS NOT NULL OR $1 AND state = 'dead' AND tries = $6 AND reason = $7)`, tries, printable(reason), now.UnixMilli())
}

// Dispatch implements [outbox.Store].
func (b *Outbox) Dispatch(ctx context.Context, now time.Time, e *outbox.Entry, sentID string, expires time.Time) (
	bool, error) {
	return b.note(ctx, "Dispatch", e, `SET sent_id = $6, ended = $7, expires = $8, state = 'dispatched', lane = NULL,
	next_try = NULL`+asRead+`
	state <> 'dispatched' OR $1 AND sent_id = $6 AND ended = $7)`,
		printable(sentID), now.UnixMilli(), seconds(protocol.RoundUp(expires, time.Second)))
}

// note changes a message that is as it was read.
func (b *Outbox) note(ctx context.Context, op string, e *outbox.Entry, set string, args ...any) (
	noted bool, err error) {
	err = b.again(ctx, op, func(maybe bool) error {
		conn, err := b.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		all := append([]any{maybe, e.Record, e.ID, e.Created.UnixMilli(), e.Resent}, args...)
		tag, err := conn.Exec(ctx, "UPDATE idem_outbox "+set, all...)
		if err != nil {
			return failed(err, true)
		}
		noted = tag.RowsAffected() > 0
		return nil
	})
	return noted && err == nil, err
}

// Messages implements [reconcile.OutboxStore].
func (s *Store) Messages(ctx context.Context, record, after string) (all []*outbox.Entry, next string, err error) {
	if after != "" && len(after) != len(outbox.MessageID("", time.Time{}, "")) {
		return nil, "", noPage(after)
	}
	err = s.driver.again(ctx, "Messages", func(bool) error {
		all, next = nil, ""
		return s.driver.rows(ctx, func(rows pgx.Rows) error {
			e, err := scan(rows)
			if err == nil {
				e.Attributes, e.After, e.Body = nil, nil, nil
				all = append(all, e)
			}
			if len(all) == page {
				next = e.ID
			}
			return err
		}, `SELECT `+columns+`, ''::bytea FROM idem_outbox WHERE record = $1 AND id > $2 ORDER BY id LIMIT $3`,
			record, after, page)
	})
	return all, next, err
}

// Requeue implements [reconcile.OutboxStore]: one statement.
func (s *Store) Requeue(ctx context.Context, e *outbox.Entry, a protocol.Audit) error {
	if e.Unreadable != nil {
		return e.Unreadable
	}
	entry, err := casstore.EntryOf(&a)
	if err != nil {
		return err
	}
	sql := `WITH w AS (UPDATE idem_outbox SET state = 'new', lane = '` + live + `', tries = 0, reason = '', ended = NULL,
	expires = NULL, next_try = NULL, resent = $4 + 1 WHERE record = $1 AND id = $2 AND created = $3 AND resent = $4
	AND state = $5 AND (state = 'dead' AND tries = $6 AND reason = $7 OR state = 'dispatched' AND ended = $8)
	RETURNING 1)` +
		fmt.Sprintf(addEntry, 9, 10, 11, 12, 13, 14) + ` SELECT EXISTS (TABLE w)`
	var done bool
	err = s.driver.again(ctx, "Requeue", func(maybe bool) error {
		conn, err := s.driver.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		if err = conn.QueryRow(ctx, sql, e.Record, e.ID, e.Created.UnixMilli(), e.Resent, string(e.State), e.Tries, e.Reason,
			e.SentAt.UnixMilli(), entry.ID, entry.Name, millis(entry.At), entry.Shard, seconds(entry.Expires),
			string(entry.Data)).Scan(&done); err == nil && !done && maybe {
			err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM idem_changes WHERE id = $1 AND name = $2)`,
				entry.ID, entry.Name).Scan(&done)
		}
		if err != nil {
			return failed(err, true)
		}
		return nil
	})
	if err == nil && !done {
		err = fmt.Errorf("%w: message %s of record %q is no longer as it was read, or waits to be sent",
			protocol.ErrNotFound, e.ID, e.Record)
	}
	return err
}

// again makes a call up to three times, as long as the server cannot be reached or refuses it for another one's sake: a
// connection is often dead after a process was frozen. maybe says whether an earlier try may have landed.
func (d driver) again(ctx context.Context, op string, call func(maybe bool) error) error {
	maybe := false
	for n := 1; ; n++ {
		err := call(maybe)
		down, ok := errors.AsType[*protocol.StoreError](err)
		if !ok {
			return err
		}
		maybe = maybe || down.Ambiguous
		if n == 3 || !down.Down && !down.Ambiguous || ctx.Err() != nil {
			e := *down
			e.Op, e.Ambiguous = op, maybe
			return &e
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(n-1) * 50 * time.Millisecond):
		}
	}
}

// printable is a text that Postgres takes.
func printable(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?") }

// A message that waits is in the lane live, or in that of its ordering key once it was left to wait in its order: those
// come first.
const live = "1"

func laneOf(orderingKey string) string {
	if orderingKey == "" {
		return live
	}
	return "0" + orderingKey
}
