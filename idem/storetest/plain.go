package storetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

func plainCases(h Harness) []check {
	return []check{
		{"Get of an absent record", func(c *cell) {
			if rec := c.get(c.fresh().id()); rec != nil {
				c.fatalf("want nil, got %+v", rec)
			}
		}},
		{"Get reads every write at once", func(c *cell) {
			a := c.start()
			for i := range 50 {
				c.lands(a.extend(time.Duration(i+2) * lease))
			}
		}},
		{"times survive with their precision", func(c *cell) {
			for _, ns := range []int{0, 1e6, 999e6} {
				c.now = time.Date(2101, 12, 31, 23, 59, 59, ns, time.UTC)
				c.start(func(r *protocol.Record) { r.LeaseUntil, r.CreatedAt = c.now, c.now })
			}
		}},
		{"retention and attempt survive", func(c *cell) {
			c.start(func(r *protocol.Record) { r.Retention, r.Attempt = time.Second, 1_000_000 })
			c.start(func(r *protocol.Record) { r.Retention = 5 * 365 * 24 * time.Hour })
			c.start(func(r *protocol.Record) { r.Uncertain = true })
			c.start(func(r *protocol.Record) { r.Value = "" })
		}},
		{"odd characters in keys and values", func(c *cell) {
			for _, s := range odd {
				if len(s) > 64 {
					s = s[:64]
				}
				key := operation.Key(s, s)
				c.must(key.Err())
				a := c.start(func(r *protocol.Record) { r.ID, r.Value = key.ID(), s })
				c.lands(a.complete(s))
			}
			long := strings.Repeat("ü", 512)
			c.start(func(r *protocol.Record) { r.ID, r.Value = operation.Key(strings.Repeat("#", 64), long).ID(), long })
		}},
		{"tenants, operations and values are kept apart", func(c *cell) {
			other := idem.Operation{Name: "charge#x"}
			for _, k := range []idem.Key{
				operation.Key("a", "b"), operation.Key("a#charge", "b"), operation.Key("A", "b"), operation.Key("a", "B"),
				operation.Key(idem.SingleTenant, "b"), other.Key("a", "b"), other.Key(idem.SingleTenant, "b"),
			} {
				c.must(k.Err())
				c.lands(c.start(func(r *protocol.Record) { r.ID = k.ID() }).complete(k.ID()))
			}
			for id := range c.ref {
				c.check(id)
			}
		}},
		{"odd characters in errors and references", func(c *cell) {
			for _, s := range append(odd, strings.Repeat("m", 2048)) {
				w := c.start().fail()
				w.Ending.Failure = &protocol.Failure{Message: s, Type: s, Code: s}
				w.Ending.Ref = s
				c.lands(w)
			}
		}},
		{"a reference stays until a claim", func(c *cell) {
			a := c.start()
			w := a.park()
			w.Ending.Ref = "pay_1"
			c.lands(w)
			a.lands(completes)
		}},
		{"a context that has ended", func(c *cell) {
			cancelled, cancel := context.WithCancel(c.ctx)
			cancel()
			late, cancel := context.WithTimeout(c.ctx, -time.Second)
			defer cancel()
			for ctx, cause := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
				for _, l := range landings(!h.WithoutSteps) {
					w := l.make(c)
					cancelledBefore(c, l.name, send(ctx, c.store, c.now, w), cause)
					c.check(w.id())
					c.lands(w)
				}
				_, err := c.store.Get(ctx, having(completes)(c).id())
				cancelledBefore(c, "Get", err, cause)
			}
		}},
		{"writes that commit with an end, or not at all", func(c *cell) {
			a := c.start()
			f := a.complete("done")
			f.Unit = foreign{}
			c.unsupported(f)
			if c.h.Unit == nil {
				a.lands(completes)
				return
			}
			c.committed(f, true)
			c.committed(a.fail(), false)
		}},
	}
}

var odd = []string{
	" ", "#", "%23", "a#b", "a/b", "../..", "*", "?", "日本語", "🙂", "\"quoted\"", "it's", "line\nbreak", "tab\t",
	"nul\x00inside", "${x}", ":v", "<&>", "e\u0301", strings.Repeat("x", 64),
}

// cancelledBefore requires that a call whose context has ended has sent nothing.
func cancelledBefore(c *cell, what string, err, cause error) {
	c.Helper()
	var down *protocol.StoreError
	if !errors.As(err, &down) || !errors.Is(err, cause) {
		c.fatalf("%s with a context that has ended: want a StoreError with %v, got %v", what, cause, err)
	}
	if down.Ambiguous {
		c.fatalf("%s with a context that has ended: nothing can have been applied, but Ambiguous is set", what)
	}
}

// foreign is a unit of work of a kind that no store knows.
type foreign struct{}

func (foreign) Seal() bool { return true }
func (foreign) Size() int  { return 0 }
