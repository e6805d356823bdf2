package sim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/casstore/memtable"
	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/protocol"
)

// compared is a store over a table whose rows are compared and set.
type compared struct {
	*casstore.Store
	table *memtable.Table
}

func (c compared) Records() []*protocol.Record {
	p, err := c.Scan(context.Background(), protocol.ScanQuery{Segments: 1, Limit: 1 << 20, Results: true})
	if err != nil {
		panic(err)
	}
	return p.Records
}

func (c compared) Delete(id string)                        { c.table.Delete(id) }
func (c compared) Units() []protocol.Unit                  { return c.table.Units() }
func (c compared) Conditions(decide func(any) (bool, any)) { c.table.Conditions(decide) }

// overRows has each process of the world use a store of its own over one table, in which every third try to write is
// lost, or its reply is.
func overRows(w *sim.World) {
	table := memtable.New()
	w.Store = compared{casstore.New(table, nil), table}
	w.Broken = func(sim.Kept) protocol.Store {
		return casstore.New(&lossy{Table: table}, nil)
	}
}

// lossy is a table that is far away.
type lossy struct {
	*memtable.Table
	writes int
}

func (l *lossy) Write(ctx context.Context, c casstore.Change) (casstore.Row, bool, error) {
	l.writes++
	lost := &protocol.StoreError{Ambiguous: true, Down: true, Err: errors.New("the connection was lost")}
	if l.writes%6 == 2 {
		return casstore.Row{}, false, lost
	}
	met, written, err := l.Table.Write(ctx, c)
	if l.writes%6 == 5 && err == nil {
		err, written = lost, false
	}
	return met, written, err
}

// The scenarios end as well over rows that are compared and set.
func TestNothingIsFoundOverRows(t *testing.T) {
	for name, scenario := range scenarios {
		r, err := sim.Explore(300, func(plan sim.Plan) (*sim.World, error) {
			w := sim.New(plan)
			overRows(w)
			synctest.Test(t, func(*testing.T) { scenario(w) })
			return w, nil
		})
		require.NoError(t, err, name)
		require.Empty(t, r.Found, name)
	}
	seeds := 30
	if long() {
		seeds = 300
	}
	for _, c := range []struct {
		way       way
		scenarios map[string]func(*sim.World)
	}{{sim.Wander, scenarios}, {sim.Crowd, scenarios}, {sim.Crowd, crowded}} {
		for name, scenario := range c.scenarios {
			r, err := c.way(seeds, func(begin func(*sim.World)) (*sim.World, error) {
				w := sim.New(nil)
				overRows(w)
				begin(w)
				synctest.Test(t, func(*testing.T) { scenario(w) })
				return w, nil
			})
			require.NoError(t, err, name)
			require.Empty(t, r.Found, name)
		}
	}
}
