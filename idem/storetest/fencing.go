package storetest

import (
	"github.com/idem-go/idempotency/idem/protocol"
)

// ownWrites are what the holder of a claim can send.
func ownWrites(steps bool) []struct {
	name string
	make func(a *attempt) write
} {
	type own = struct {
		name string
		make func(a *attempt) write
	}
	ws := []own{
		{"extension", func(a *attempt) write { return a.extend(4 * lease) }},
		{"reference", func(a *attempt) write { return a.refer("pay_late") }},
		{"completion", func(a *attempt) write { return a.complete("mine") }},
		{"failure", func(a *attempt) write { return a.fail() }},
		{"release", func(a *attempt) write { return a.release(false) }},
		{"uncertain release", func(a *attempt) write { return a.release(true) }},
		{"park", func(a *attempt) write { return a.park() }},
		{"withdrawal", func(a *attempt) write { return a.withdraw() }},
	}
	if steps {
		ws = append(ws,
			own{"step", func(a *attempt) write { return a.step("late", []byte("x")) }},
			own{"begin mark", func(a *attempt) write { return a.begin("late") }})
	}
	return ws
}

// fencingCases: an attempt that has lost its claim, or has ended, changes nothing.
func fencingCases(steps bool) []check {
	resolved := func(to protocol.State) func(c *cell) *attempt {
		return func(c *cell) *attempt {
			a := c.start()
			c.lands(a.lapse())
			c.lands(a.resolve(to))
			return a
		}
	}
	then := func(f func(a *attempt) write) func(c *cell) *attempt {
		return func(c *cell) *attempt {
			a := c.start()
			c.lands(f(a))
			return a
		}
	}
	situations := []struct {
		name string
		make func(c *cell) *attempt
	}{
		{"a takeover", then(func(a *attempt) write { return a.next().acquire() })},
		{"a takeover of a parked record", func(c *cell) *attempt {
			a := resolved(protocol.Released)(c)
			c.lands(a.next().acquire())
			return a
		}},
		{"a takeover and its completion", func(c *cell) *attempt {
			a := c.start()
			b := a.next()
			c.lands(b.acquire())
			c.lands(b.complete("theirs"))
			return a
		}},
		{"a takeover and its park", func(c *cell) *attempt {
			a := c.start()
			b := a.next()
			c.lands(b.acquire())
			c.lands(b.park())
			return a
		}},
		{"a replacement", then(func(a *attempt) write { return a.replacement().acquire() })},
		{"a resolution to completed", resolved(protocol.Completed)},
		{"a resolution to failed", resolved(protocol.Failed)},
		{"a resolution to released", resolved(protocol.Released)},
		{"a withdrawal", then(func(a *attempt) write { return a.withdraw() })},
		{"the own completion", then(func(a *attempt) write { return a.complete("first") })},
		{"the own failure", then(func(a *attempt) write { return a.fail() })},
		{"the own release", then(func(a *attempt) write { return a.release(false) })},
		{"somebody else's claim", func(c *cell) *attempt {
			a := c.start()
			return c.fresh(func(r *protocol.Record) { r.ID = a.id() })
		}},
	}
	var cases []check
	for _, s := range situations {
		for _, w := range ownWrites(steps) {
			cases = append(cases, check{w.name + " after " + s.name, func(c *cell) {
				a := s.make(c)
				c.refused(w.make(a))
			}})
		}
	}
	for _, w := range ownWrites(steps) {
		cases = append(cases, check{w.name + " after deletion", func(c *cell) {
			a := c.start()
			sent := w.make(a)
			c.delete(a.id())
			// Only what may create a record does so.
			if _, ok := sent.(withdraw); ok {
				c.lands(sent)
				return
			}
			c.refused(sent)
		}})
	}
	return append(cases, parkedCases(steps)...)
}

// parkedCases: another call's park keeps the owner, which may still say how a step or the
// attempt ended but can neither begin anything nor make itself repeatable.
func parkedCases(steps bool) []check {
	lands := map[string]bool{
		"extension": true, "completion": true, "failure": true, "release": true, "park": true, "withdrawal": true,
		"step": true, "reference": true,
	}
	var cases []check
	for _, w := range ownWrites(steps) {
		cases = append(cases, check{w.name + " after another call's park", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			equal(c, "the reference lets it land", lands[w.name], c.do(w.make(a)) == nil)
		}})
	}
	return append(cases,
		check{"withdrawal after another call's own claim", func(c *cell) {
			a := c.start()
			c.lands(a.release(false))
			b := a.next()
			c.lands(a.next().acquire())
			c.refused(b.withdraw())
		}})
}
