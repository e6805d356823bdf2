package storetest

import (
	"errors"

	"github.com/idem-go/idempotency/idem/protocol"
)

// copyCases: a store keeps no reference to what it is given and hands out copies.
func copyCases(steps bool) []check {
	cases := []check{
		{"a result is not the caller's memory", func(c *cell) {
			a := c.start()
			w := a.complete("outcome")
			c.lands(w)
			clear(w.Ending.Result)
			c.check(a.id())
		}},
		{"a large result is not the caller's memory", func(c *cell) {
			a := c.start()
			w := a.complete(string(noise(450 << 10)))
			c.lands(w)
			clear(w.Ending.Result)
			c.check(a.id())
		}},
		{"a failure is not the caller's memory", func(c *cell) {
			a := c.start()
			w := a.fail()
			c.lands(w)
			w.Ending.Failure.Message = "changed"
			c.check(a.id())
		}},
		{"a resolved failure is not the caller's memory", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			w := a.resolve(protocol.Failed)
			c.lands(w)
			w.Ending.Failure.Message = "changed"
			c.check(a.id())
		}},
		{"a record without a claim is not the caller's memory", func(c *cell) {
			a := c.fresh()
			w := a.atomic(a.complete("atomic"))
			c.lands(w)
			clear(w.Ending.Result)
			c.check(a.id())
		}},
		{"what Get returns is the caller's own", func(c *cell) {
			a := c.start()
			c.lands(a.fail())
			scribble(c.get(a.id()))
			c.check(a.id())
			b := c.start()
			c.lands(b.complete("outcome"))
			scribble(c.get(b.id()))
			c.check(b.id())
		}},
		{"what Result returns is the caller's own", func(c *cell) {
			a := c.start()
			c.lands(a.complete("outcome"))
			rec := c.get(a.id())
			body, err := c.store.Result(c.ctx, rec)
			c.must(err)
			clear(body)
			c.same("the record that Result was given", c.ref[a.id()], rec)
			c.check(a.id())
		}},
		{"ConflictError.Existing is the caller's own", func(c *cell) {
			for _, s := range standing(steps) {
				a := s.make(c)
				err := c.fresh(func(r *protocol.Record) { r.ID = a.id() }).acquire().send(c.ctx, c.store, c.now)
				var conflict *protocol.ConflictError
				if !errors.As(err, &conflict) || conflict.Existing == nil {
					c.fatalf("%s: want a ConflictError with the record, got %v", s.name, err)
				}
				scribble(conflict.Existing)
				c.check(a.id())
			}
		}},
	}
	if steps {
		cases = append(cases, check{"a step is not the caller's memory", func(c *cell) {
			a := c.start()
			w := a.step("ship", []byte("s_1"))
			c.lands(w)
			clear(w.Result)
			c.check(a.id())
			scribble(c.get(a.id()))
			c.check(a.id())
		}})
	}
	return cases
}

// scribble changes all that a record refers to.
func scribble(r *protocol.Record) {
	clear(r.Body.Data)
	clear(r.Body.Digest)
	if r.Failure != nil {
		*r.Failure = protocol.Failure{Message: "changed"}
	}
	for name, s := range r.Steps {
		clear(s.Body.Data)
		delete(r.Steps, name)
	}
	r.State, r.Owner, r.Write = protocol.Pending, "changed", "changed"
}
