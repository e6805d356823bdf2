package storetest

import "github.com/idem-go/idempotency/idem/protocol"

// copyCases: a store keeps no reference to what it is given and hands out copies.
func copyCases(steps bool) []check {
	// given lands a write, changes the memory that it was made of, and reads the record.
	given := func(name string, from func(c *cell) *attempt, m move) check {
		return check{name + " is not the caller's memory", func(c *cell) {
			w := m(from(c))
			c.lands(w)
			switch w := w.(type) {
			case step:
				clear(w.Result)
			case finish:
				scribble(&protocol.Record{Body: protocol.Body{Data: w.Ending.Result}, Failure: w.Ending.Failure})
			case settle:
				scribble(&protocol.Record{Failure: w.Ending.Failure})
			}
			c.check(w.id())
		}}
	}
	return append([]check{
		given("a result", having(), completes),
		given("a large result", having(), completesInParts),
		given("a failure", having(), fails),
		given("a resolved failure", having(parks), resolves(protocol.Failed)),
		given("a record without a claim", unclaimed, func(a *attempt) write { return a.outcome() }),
		{"what Get returns is the caller's own", func(c *cell) {
			for _, s := range standing(steps) {
				a := s.make(c)
				scribble(c.get(a.id()))
				c.check(a.id())
			}
		}},
		{"what Result returns is the caller's own", func(c *cell) {
			a := having(completes)(c)
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
				scribble(c.conflicting(a.unseen().acquire()))
				c.check(a.id())
			}
		}},
	}, withSteps(steps, given("a step", having(), ships))...)
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
