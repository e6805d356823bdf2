package casstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/casstore/memtable"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/storetest"
)

// unit is a unit of work that sets a flag.
type unit struct{ committed bool }

func (*unit) Seal() bool                                   { return true }
func (*unit) Size() int                                    { return 0 }
func (u *unit) CommitInMemory(func(any) (bool, any)) error { u.committed = true; return nil }

// table is a table whose calls are noted, and may fail.
type table struct {
	*memtable.Table
	calls []string
	fault func(ctx context.Context, method string, make func()) error
}

func newTable() *table {
	d := &table{Table: memtable.New()}
	d.Fault = func(ctx context.Context, method string, make func()) error {
		d.calls = append(d.calls, method)
		if d.fault != nil {
			return d.fault(ctx, method, make)
		}
		make()
		return nil
	}
	return d
}

// newStore is a store over a new table.
func newStore(t *testing.T) (*casstore.Store, *table) {
	t.Helper()
	d := newTable()
	return casstore.New(d, nil), d
}

var errLost = errors.New("the connection was lost")

func TestConformance(t *testing.T) { conformance(t, nil) }

// Each first try to write is lost, or its reply is.
func TestLostReplies(t *testing.T) {
	for name, applied := range map[string]bool{"request lost": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			conformance(t, func(t *testing.T, d *table) {
				n := 0
				d.fault = func(_ context.Context, method string, call func()) error {
					if method == "Write" {
						n++
					}
					if method != "Write" || applied || n%2 == 0 {
						call()
					}
					if method == "Write" && n%2 == 1 {
						return &protocol.StoreError{Ambiguous: true, Down: true, Err: errLost}
					}
					return nil
				}
			})
		})
	}
}

func conformance(t *testing.T, with func(*testing.T, *table)) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		s, d := newStore(t)
		if with != nil {
			with(t, d)
		}
		damaged := func(name string, do func(data string) string) storetest.Damage {
			return storetest.Damage{Name: name, Do: func(_ context.Context, id string) error {
				c := d.Table.Row(id)
				c.Row.Data = []byte(do(string(c.Row.Data)))
				d.Set(c)
				return nil
			}}
		}
		return storetest.Harness{
			Store: s, Scanner: s, Parallel: true,
			Delete: func(_ context.Context, id string) error {
				d.Delete(id)
				return nil
			},
			Unit: func(context.Context) (protocol.Unit, func(context.Context) (bool, error), error) {
				u := new(unit)
				return u, func(context.Context) (bool, error) { return u.committed, nil }, nil
			},
			Damages: []storetest.Damage{
				damaged("newer version", func(s string) string { return strings.Replace(s, `"v":1`, `"v":2`, 1) }),
				damaged("new field", func(s string) string { return strings.Replace(s, `"v":1`, `"v":1,"new":true`, 1) }),
				damaged("cut short", func(s string) string { return s[:len(s)/2] }),
				damaged("no owner", func(s string) string { return strings.Replace(s, `"owner"`, `"seen"`, 1) }),
				damaged("another record's", func(s string) string { return strings.Replace(s, `"id":"`, `"id":"other`, 1) }),
				{Name: "missing part", Parts: true, Do: func(_ context.Context, id string) error {
					clear(d.Table.Row(id).Put)
					return nil
				}},
				{Name: "altered part", Parts: true, Do: func(_ context.Context, id string) error {
					for _, data := range d.Table.Row(id).Put {
						data[0]++
					}
					return nil
				}},
			},
		}
	})
}
