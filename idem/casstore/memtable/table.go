// Package memtable is a [casstore.Driver] in the memory of one process: for tests of casstore, and as the shortest
// driver to read. [memstore] is the store for tests of anything else.
package memtable

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Table has rows in memory. It commits every [memstore.Unit]. It is safe for concurrent use.
type Table struct {
	// Fault, if set, is around each call of a method, which make makes. It must not change while calls are made.
	Fault func(ctx context.Context, method string, make func()) error

	mu         sync.Mutex
	rows       map[string]casstore.Change // the latest, with all parts
	entries    []casstore.Entry
	units      []protocol.Unit
	conditions func(action any) (holds bool, old any)
}

var _ casstore.Driver = (*Table)(nil)

// New returns an empty table.
func New() *Table { return &Table{rows: map[string]casstore.Change{}} }

func (t *Table) call(ctx context.Context, method string, make func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return &protocol.StoreError{Err: err}
	}
	if t.Fault != nil {
		return t.Fault(ctx, method, make)
	}
	make()
	return nil
}

func (t *Table) Read(ctx context.Context, id string) (row casstore.Row, err error) {
	err = t.call(ctx, "Read", func() { row = own(t.rows[id].Row) })
	return row, err
}

func (t *Table) Write(ctx context.Context, c casstore.Change) (met casstore.Row, written bool, err error) {
	unit, ok := c.Unit.(memstore.Unit)
	if c.Unit != nil && !ok {
		return met, false, errors.ErrUnsupported
	}
	var refused error
	err = t.call(ctx, "Write", func() { met, written, refused = t.write(c, unit) })
	if err == nil {
		err = refused
	}
	return met, written && err == nil, err
}

func (t *Table) write(c casstore.Change, unit memstore.Unit) (casstore.Row, bool, error) {
	old := t.rows[c.Row.ID]
	if old.Row.Version != c.Seen {
		return own(old.Row), false, nil
	}
	if unit != nil {
		if err := unit.CommitInMemory(t.conditions); err != nil {
			return casstore.Row{}, false, err
		}
		t.units = append(t.units, unit)
	}
	if c.Entry != nil {
		t.entries = append(t.entries, *c.Entry)
	}
	delete(t.rows, c.Row.ID)
	if c.Row.Data == nil {
		return casstore.Row{}, true, nil
	}
	parts := maps.Clone(old.Put)
	if parts == nil {
		parts = map[string][]byte{}
	}
	for name, data := range c.Put {
		parts[name] = slices.Clone(data)
	}
	for _, name := range c.Drop {
		delete(parts, name)
	}
	c.Put, c.Row = parts, own(c.Row)
	t.rows[c.Row.ID] = c
	return casstore.Row{}, true, nil
}

// own is a row that shares no memory with another one.
func own(row casstore.Row) casstore.Row {
	row.Data, row.Body = slices.Clone(row.Data), slices.Clone(row.Body)
	return row
}

func (t *Table) Part(ctx context.Context, id, name string) (data []byte, err error) {
	err = t.call(ctx, "Part", func() { data = t.rows[id].Put[name] })
	return slices.Clone(data), err
}

func (t *Table) Due(ctx context.Context, shard int, until time.Time, after *casstore.Place, limit int) (
	all []casstore.Place, err error) {
	compare := func(a, b casstore.Place) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	}
	err = t.call(ctx, "Due", func() {
		for id, c := range t.rows {
			at := casstore.Place{Due: c.Due.Truncate(time.Millisecond), ID: id}
			if c.Shard == shard && !c.Due.IsZero() && !at.Due.After(until) && (after == nil || compare(at, *after) > 0) {
				all = append(all, at)
			}
		}
		slices.SortFunc(all, compare)
		all = all[:min(len(all), limit)]
	})
	return all, err
}

func (t *Table) Scan(ctx context.Context, segment, segments int, after string, limit int) (
	rows []casstore.Row, next string, err error) {
	err = t.call(ctx, "Scan", func() {
		for _, id := range slices.Sorted(maps.Keys(t.rows)) {
			if id <= after || len(id)%segments != segment {
				continue
			}
			if len(rows) == limit {
				next = rows[limit-1].ID
				break
			}
			rows = append(rows, own(t.rows[id].Row))
		}
	})
	return rows, next, err
}

func (t *Table) Entries(ctx context.Context, q casstore.EntryQuery) (all []casstore.Entry, next string, err error) {
	from, _ := strconv.Atoi(q.Page)
	err = t.call(ctx, "Entries", func() {
		for _, e := range t.entries {
			if q.ID != "" && e.ID == q.ID || q.ID == "" && e.Shard == q.Shard && !e.At.Before(q.From) && e.At.Before(q.To) {
				all = append(all, e)
			}
		}
		slices.SortStableFunc(all, func(a, b casstore.Entry) int { return a.At.Compare(b.At) })
		if all = all[from:]; len(all) > q.Limit {
			all, next = all[:q.Limit], strconv.Itoa(from+q.Limit)
		}
	})
	return all, next, err
}

func (t *Table) RemoveExpired(ctx context.Context, before time.Time, limit int) (n int, err error) {
	err = t.call(ctx, "RemoveExpired", func() {
		for id, c := range t.rows {
			if !c.Expires.IsZero() && !c.Expires.After(before) && n < limit {
				delete(t.rows, id)
				n++
			}
		}
	})
	return n, err
}

// Row returns a row with all of its parts, as it is kept.
func (t *Table) Row(id string) casstore.Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[id]
}

// Set replaces a row as it is kept, behind the back of a store. Without data there is none any more.
func (t *Table) Set(c casstore.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[c.Row.ID] = c; c.Row.Data == nil {
		delete(t.rows, c.Row.ID)
	}
}

// Delete removes a row, as if it had expired.
func (t *Table) Delete(id string) { t.Set(casstore.Change{Row: casstore.Row{ID: id}}) }

// Units are the units of work that have committed; see [memstore.Store.Units].
func (t *Table) Units() []protocol.Unit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.units)
}

// Conditions says which conditions of a unit hold; see [memstore.Store.Conditions].
func (t *Table) Conditions(decide func(action any) (holds bool, old any)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conditions = decide
}
