package pgstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// head is what of a message no statement looks at.
type head struct {
	Format      int               `json:"v"`
	Type        string            `json:"type,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	After       []string          `json:"after,omitempty"`
}

// headFormat is the version of a [head]. A message of a later one is not read.
const headFormat = 1

// values are those of addMessages.
func values(messages []*outbox.Entry) []any {
	var ids, destinations, keys, heads []string
	var bodies [][]byte
	for _, e := range messages {
		h, _ := json.Marshal(head{headFormat, e.Type, e.ContentType, e.Attributes, e.After}) // texts never fail
		ids, destinations, keys = append(ids, e.ID), append(destinations, e.Destination), append(keys, e.OrderingKey)
		heads, bodies = append(heads, string(h)), append(bodies, e.Body)
	}
	return []any{messages[0].Created.UnixMilli(), ids, destinations, keys, heads, bodies}
}

// columns are those that scan reads, and the body comes after them.
const columns = `record, id, number, created, destination, ordering_key, head, state, tries, next_try, reason,
	sent_id, ended, resent`

// scan reads a message, and what comes after it in the row.
func scan(rows pgx.Rows, more ...any) (*outbox.Entry, error) {
	var e outbox.Entry
	var created int64
	var next, ended *int64
	var data string
	err := rows.Scan(append([]any{&e.Record, &e.ID, &e.Number, &created, &e.Destination, &e.OrderingKey, &data, &e.State,
		&e.Tries, &next, &e.Reason, &e.SentID, &ended, &e.Resent, &e.Body}, more...)...)
	if err != nil {
		return nil, err
	}
	var h head
	err = json.Unmarshal([]byte(data), &h)
	switch {
	case err != nil:
	case h.Format != headFormat:
		err = fmt.Errorf("it is of version %d, and this code reads version %d", h.Format, headFormat)
	case e.State != outbox.New && e.State != outbox.Retrying && e.State != outbox.Dispatched && e.State != outbox.Dead:
		err = fmt.Errorf("there is no state %q", e.State)
	}
	if err != nil {
		return &outbox.Entry{Record: e.Record, Message: outbox.Message{ID: e.ID, Destination: e.Destination,
			OrderingKey: e.OrderingKey}, Unreadable: fmt.Errorf("%w: message %s of record %q: %w",
			protocol.ErrRecordUnreadable, e.ID, e.Record, err)}, nil
	}
	e.Type, e.ContentType, e.Attributes, e.After = h.Type, h.ContentType, h.Attributes, h.After
	e.TenantGroup, e.Created = protocol.TenantGroup(e.Record), time.UnixMilli(created).UTC()
	if next != nil {
		e.NextTry = time.UnixMilli(*next).UTC()
	}
	if ended != nil && e.State == outbox.Dispatched {
		e.SentAt = time.UnixMilli(*ended).UTC()
	}
	return &e, nil
}

// place is where a message is among those that wait for its destination: behind a whole lane, or in one.
type place struct {
	lane            string
	created, number int64
	id              string
}

// String is the place as a cursor.
func (p place) String() string { return fmt.Sprintf("%s %d %d %s", p.lane, p.created, p.number, p.id) }

// first is the place from which a list begins.
func first(shard int, cursor string) (p place, err error) {
	if shard < 0 || shard >= outbox.Shards {
		return p, fmt.Errorf("pgstore: there is no shard %d", shard)
	}
	parts := strings.Split(cursor, " ")
	p.lane = parts[0]
	switch len(parts) {
	case 1:
		if cursor == "" || cursor[0] < live[0] {
			return p, nil
		}
	case 4:
		var bad error
		p.created, err = strconv.ParseInt(parts[1], 10, 64)
		p.number, bad = strconv.ParseInt(parts[2], 10, 64)
		if p.id = parts[3]; err == nil && bad == nil {
			return p, nil
		}
	}
	return place{}, noPage(cursor)
}
