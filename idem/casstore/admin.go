package casstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/idem-go/idempotency/idem/protocol"
)

// page is how many rows or changes a page has at most.
const page = 250

// own are rows that are no records: no record's id begins so.
const (
	own       = "!"
	pausesRow = own + "pauses"
	countRow  = own + "count "
)

// Due lists what is due; see [protocol.AdminStore].
func (s *Store) Due(ctx context.Context, q protocol.DueQuery) (p protocol.DuePage, err error) {
	after, err := placeOf(q.Page)
	if err != nil {
		return p, err
	}
	limit := q.Limit
	if limit <= 0 {
		limit = page
	}
	err = s.read(ctx, "Due", listTime, 0, func(ctx context.Context) error {
		all, err := s.driver.Due(ctx, q.Shard, q.Until, after, limit+1)
		p = protocol.DuePage{}
		for i, it := range all {
			if i == limit {
				last := all[i-1]
				p.Next = strconv.FormatInt(last.Due.UnixMilli(), 10) + " " + last.ID
				break
			}
			p.IDs, p.Due = append(p.IDs, it.ID), append(p.Due, it.Due)
		}
		return err
	})
	return p, err
}

func placeOf(page string) (*Place, error) {
	if page == "" {
		return nil, nil
	}
	at, id, ok := strings.Cut(page, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil {
		return nil, &protocol.ConfigError{What: "page",
			Problem: fmt.Sprintf("casstore: %q is none: pass what the page before returned as Next", page)}
	}
	return &Place{time.UnixMilli(ms).UTC(), id}, nil
}

// Postpone writes when a record is due next; see [protocol.AdminStore].
func (s *Store) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	return s.write(ctx, "Postpone", p.ID, nil, now, p.Apply, with{audit: p.Audit})
}

// Prolong keeps a record that has ended for longer; see [protocol.AdminStore].
func (s *Store) Prolong(ctx context.Context, now time.Time, p protocol.Prolongation) error {
	return s.write(ctx, "Prolong", p.ID, nil, now, p.Apply, with{audit: p.Audit})
}

// Forget removes a record; see [protocol.AdminStore].
func (s *Store) Forget(ctx context.Context, now time.Time, e protocol.Erasure) error {
	return s.write(ctx, "Forget", e.ID, nil, now, e.Apply, with{audit: e.Audit})
}

// ReadPaused implements pause.Store.
func (s *Store) ReadPaused(ctx context.Context) (p protocol.Paused, err error) {
	err = s.read(ctx, "ReadPaused", tryTime, 0, func(ctx context.Context) error {
		row, err := s.driver.Read(ctx, pausesRow)
		if err == nil {
			p, err = paused(row)
		}
		return err
	})
	return p, err
}

func paused(row Row) (p protocol.Paused, err error) {
	if row.Version != 0 {
		if err = json.Unmarshal(row.Data, &p); err != nil {
			err = &protocol.StoreError{Op: "ReadPaused", Err: fmt.Errorf("what is paused cannot be read: %w", err)}
		}
	}
	return p, err
}

// WritePaused implements reconcile.PauseStore.
func (s *Store) WritePaused(ctx context.Context, w protocol.PausedWrite) error {
	return s.swap(ctx, "WritePaused", pausesRow, nil, func(row Row, maybe bool) (*Change, error) {
		old, err := paused(row)
		if err != nil {
			return nil, err
		}
		next, err := w.Apply(old)
		if _, met := errors.AsType[*protocol.ConflictError](err); met && maybe {
			// It may have landed, and have been replaced since: made again it would undo the other one's.
			err = &protocol.StoreError{Op: "WritePaused", Ambiguous: true,
				Err: errors.New("what is paused was changed by another write since")}
		}
		switch {
		case err != nil:
			return nil, err
		case old.Write == w.Write: // it has landed: see write
			return &Change{Row: Row{Data: row.Data}}, nil
		}
		data, err := json.Marshal(next)
		if err != nil {
			return nil, err
		}
		e, err := EntryOf(w.Audit)
		return &Change{Row: Row{Data: data}, Entry: e}, err
	})
}

// CountKey implements limit.Counter.
func (s *Store) CountKey(ctx context.Context, counter string, bound int, expires time.Time) (counted bool, err error) {
	err = s.swap(ctx, "CountKey", countRow+counter, nil, func(row Row, _ bool) (*Change, error) {
		n := 0
		if row.Version != 0 {
			if n, err = strconv.Atoi(string(row.Data)); err != nil {
				return nil, &protocol.StoreError{Op: "CountKey", Err: err}
			}
		}
		if counted = n < bound; !counted {
			return nil, nil
		}
		return &Change{Row: Row{Data: strconv.AppendInt(nil, int64(n)+1, 10)},
			Expires: protocol.RoundUp(expires, time.Second)}, nil
	})
	return counted && err == nil, err
}

// EntryOf is how a change from outside is kept, for a database that makes some by itself.
func EntryOf(a *protocol.Audit) (*Entry, error) {
	own := *a
	own.At, own.Until = a.At.UTC(), a.Until.UTC()
	own.ExpiresAt = protocol.RoundUp(a.ExpiresAt, time.Second).UTC()
	data, err := json.Marshal(&own)
	if err != nil {
		return nil, fmt.Errorf("casstore: the change of %q: %w", a.ID, err)
	}
	return &Entry{ID: a.ID, Name: a.Entry, At: a.At, Shard: Group(a.ID) % protocol.AuditShards,
		Expires: own.ExpiresAt, Data: data}, nil
}

// AuditOf lists the changes of a record from outside its attempts; see [protocol.AdminStore].
func (s *Store) AuditOf(ctx context.Context, id, page string) (protocol.AuditPage, error) {
	return s.audit(ctx, EntryQuery{ID: id, Page: page})
}

// AuditBetween lists the changes of all records in a time; see [protocol.AdminStore].
func (s *Store) AuditBetween(ctx context.Context, n int, from, to time.Time, page string) (protocol.AuditPage, error) {
	return s.audit(ctx, EntryQuery{Shard: n, From: from, To: to, Page: page})
}

func (s *Store) audit(ctx context.Context, q EntryQuery) (p protocol.AuditPage, err error) {
	q.Limit = page
	err = s.read(ctx, "Audit", listTime, 0, func(ctx context.Context) error {
		p = protocol.AuditPage{}
		all, next, err := s.driver.Entries(ctx, q)
		for _, e := range all {
			a := protocol.Audit{}
			if err := json.Unmarshal(e.Data, &a); err != nil || a.ID != e.ID {
				a = protocol.Audit{ID: e.ID, Entry: e.Name, At: e.At, Change: protocol.ChangeUnreadable, Unconfirmed: true,
					Why: fmt.Sprintf("the entry is damaged: %v", err)}
			}
			p.Entries = append(p.Entries, a)
		}
		p.Next = next
		return err
	})
	return p, err
}

// Scan lists all records; see [protocol.Scanner]. It reads every row.
func (s *Store) Scan(ctx context.Context, q protocol.ScanQuery) (p protocol.ScanPage, err error) {
	if q.Segments < 1 || q.Segment < 0 || q.Segment >= q.Segments {
		return p, fmt.Errorf("casstore: there is no segment %d of %d", q.Segment, q.Segments)
	}
	limit := q.Limit
	if limit <= 0 {
		limit = page
	}
	err = s.read(ctx, "Scan", listTime, 0, func(ctx context.Context) error {
		rows, next, err := s.driver.Scan(ctx, q.Segment, q.Segments, q.Page, limit)
		p = protocol.ScanPage{Looked: len(rows), Next: next}
		for _, row := range rows {
			if strings.HasPrefix(row.ID, own) {
				continue
			}
			rec, err := decode(row)
			if err != nil {
				p.Unreadable = append(p.Unreadable, row.ID)
				continue
			}
			if !q.Results {
				rec = rec.WithoutResults()
			}
			p.Records = append(p.Records, rec)
		}
		return err
	})
	return p, err
}

// RemoveExpired implements reconcile.Remover. What has expired is found by an index: all segments are one, of as many
// pages as there are.
func (s *Store) RemoveExpired(ctx context.Context, q protocol.ExpiredQuery) (p protocol.ExpiredPage, err error) {
	err = s.read(ctx, "RemoveExpired", listTime, 0, func(ctx context.Context) error {
		n, err := s.driver.RemoveExpired(ctx, q.Before, q.Limit)
		p = protocol.ExpiredPage{Looked: n, Removed: n, Next: "more"}
		if n < q.Limit {
			p.Next, p.Done = "", true
		}
		return err
	})
	return p, err
}
