package storetest

import (
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// situation is a record in a state, and the attempt that has brought it there or could go on with it.
type situation struct {
	name string
	make func(c *cell) *attempt
}

// standing are the ways in which a record can stand in a claim's way.
func standing(steps bool) []situation {
	ways := []situation{
		{"in_progress", having()},
		{"in_progress, not repeatable", func(c *cell) *attempt { return c.start(notRepeatable) }},
		{"completed", having(completes)},
		{"completed without a result", having(func(a *attempt) write { return a.complete("") })},
		{"failed", having(fails)},
		{"released", having(releases)},
		{"released, uncertain", having(releasesInDoubt)},
		{"unknown", having(parks)},
		{"parked by another call", having(lapses)},
		{"withdrawn", having(withdraws)},
	}
	if steps {
		ways = append(ways, situation{"in_progress with a step", having(ships)},
			situation{"in_progress in an open step", having(begins)})
	}
	return ways
}

func claimCases(steps bool) []check {
	cases := []check{
		{"creates the record as given", func(c *cell) { c.start() }},
		{"creates a not repeatable record", func(c *cell) { c.start(notRepeatable) }},
		{"of another key is not touched", func(c *cell) {
			a := c.start()
			c.start().lands(completes)
			c.check(a.id())
		}},
	}
	for _, s := range standing(steps) {
		cases = append(cases,
			check{"finds a record " + s.name, func(c *cell) { s.make(c).unseen().refused(acquires, acquires) }},
			check{"takes over a record " + s.name, func(c *cell) { s.make(c).lands(takesOver) }},
			check{"replaces a record " + s.name, func(c *cell) { s.make(c).lands(replaces) }})
	}
	return append(append(cases, staleClaimCases(steps)...), withSteps(steps,
		check{"takeover keeps identity and steps and nothing else", func(c *cell) {
			noResult := func(a *attempt) write { return a.step("charge", nil) }
			c.start().lands(ships, noResult, lapses, resolves(protocol.Released), takesOver)
		}})...)
}

// staleClaimCases: what a claim has seen must still be so when it lands.
func staleClaimCases(steps bool) []check {
	changes := []named{
		{"an extension", extends}, {"another call's takeover", takesOver}, {"another call's replacement", replaces},
		{"another call's park", lapses}, {"a completion", completes}, {"a release", releases},
	}
	if steps {
		changes = append(changes, named{"a step", ships})
	}
	var cases []check
	for _, claim := range []named{
		{"takeover", takesOver}, {"replacement", replaces}, {"withdrawal of a takeover", withdrawsNext},
	} {
		for _, ch := range changes {
			cases = append(cases, check{claim.name + " fails after " + ch.name, func(c *cell) {
				c.start().holds(claim.make).lands(ch.make).late(false)
			}})
		}
	}
	for _, replace := range []bool{false, true} {
		cases = append(cases, check{fmt.Sprintf("on a deleted record reserves again, replace %v", replace), func(c *cell) {
			a := c.start()
			other := a.next()
			if replace {
				other = a.replacement()
			}
			other.deleted().refused(acquires, withdraws)
			other.claim.Seen, other.claim.Replace, other.claim.Record.Write = "", false, newID()
			other.claim.Record.CreatedAt = c.now.Add(time.Second)
			other.lands(acquires)
		}})
	}
	return cases
}
