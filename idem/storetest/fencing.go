package storetest

import "github.com/idem-go/idempotency/idem/protocol"

// ownWrites are what the holder of a claim can send.
func ownWrites(steps bool) []named {
	ws := []named{
		{"extension", func(a *attempt) write { return a.extend(4 * lease) }},
		{"reference", refers("pay_late")},
		{"completion", func(a *attempt) write { return a.complete("mine") }},
		{"failure", fails},
		{"release", releases},
		{"uncertain release", releasesInDoubt},
		{"park", parks},
		{"withdrawal", withdraws},
	}
	if steps {
		ws = append(ws, named{"step", func(a *attempt) write { return a.step("late", []byte("x")) }},
			named{"begin mark", func(a *attempt) write { return a.begin("late") }})
	}
	return ws
}

// fencingCases: an attempt that has lost its claim, or has ended, changes nothing.
func fencingCases(steps bool) []check {
	then := func(moves ...move) func(c *cell) *attempt {
		return func(c *cell) *attempt {
			a := c.start()
			a.next().lands(acquires).lands(moves...)
			return a
		}
	}
	var cases []check
	for _, s := range []situation{
		{"a takeover", then()},
		{"a takeover of a parked record", having(lapses, resolves(protocol.Released), takesOver)},
		{"a takeover and its completion", then(completes)},
		{"a takeover and its park", then(parks)},
		{"a replacement", having(replaces)},
		{"a resolution to completed", having(lapses, resolves(protocol.Completed))},
		{"a resolution to failed", having(lapses, resolves(protocol.Failed))},
		{"a resolution to released", having(lapses, resolves(protocol.Released))},
		{"a withdrawal", having(withdraws)},
		{"the own completion", having(completes)},
		{"the own failure", having(fails)},
		{"the own release", having(releases)},
		{"somebody else's claim", func(c *cell) *attempt { return c.start().unseen() }},
	} {
		for _, w := range ownWrites(steps) {
			cases = append(cases, check{w.name + " after " + s.name, func(c *cell) { s.make(c).refused(w.make) }})
		}
	}
	for _, w := range ownWrites(steps) {
		cases = append(cases, check{w.name + " after deletion", func(c *cell) {
			a := c.start().holds(w.make).deleted()
			_, creates := a.held.(withdraw) // and nothing else does
			a.late(creates)
		}})
	}
	return append(cases, check{"withdrawal after another call's own claim", func(c *cell) {
		having(releases)(c).next().lands(takesOver).refused(withdraws)
	}})
}
