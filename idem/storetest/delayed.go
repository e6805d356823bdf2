package storetest

import (
	"slices"

	"github.com/idem-go/idempotency/idem/protocol"
)

// delayedCases deliver a write that was thought lost after what followed it.
func delayedCases(steps bool) []check {
	return slices.Concat(withdrawalCases(), lateWriteCases(), withSteps(steps,
		check{"another call's park after a step", func(c *cell) { c.start().holds(lapses).lands(ships).late(false) }},
		check{"withdrawn takeover keeps the steps", func(c *cell) {
			having(ships)(c).next().lands(withdraws).refused(acquires)
		}},
		check{"withdrawal brings no steps back", func(c *cell) {
			having(ships)(c).next().holds(withdraws).deleted().late(false)
		}},
		check{"landed and withdrawn takeover keeps the steps", func(c *cell) {
			having(ships)(c).next().lands(acquires, withdraws)
		}},
		check{"withdrawn replacement drops the steps", func(c *cell) {
			having(ships, completes)(c).replacement().lands(withdraws)
		}}))
}

// withdrawalCases: a claim without an answer is taken back, and lands neither before nor after.
func withdrawalCases() []check {
	return []check{
		{"claim after its withdrawal", func(c *cell) { c.fresh().lands(withdraws).refused(acquires) }},
		{"claim after its withdrawal, landed before", func(c *cell) { c.start().lands(withdraws).refused(acquires) }},
		{"claim after its withdrawal and another call's claim", func(c *cell) {
			a := c.fresh().lands(withdraws)
			b := a.next().lands(acquires)
			a.refused(acquires)
			b.lands(completes)
			a.refused(acquires)
		}},
		{"claim after its withdrawal, parked by another call before", func(c *cell) {
			c.start(notRepeatable).lands(lapses, withdraws).refused(acquires)
		}},
		{"uncertain withdrawal leaves what another call parked", func(c *cell) {
			c.start().next().lands(acquires, lapses).refused(withdraws) // of a lapsed claim
		}},
		{"takeover after its withdrawal", func(c *cell) { c.start().next().lands(withdraws).refused(acquires) }},
		{"takeover of a released record after its withdrawal", func(c *cell) {
			having(releases)(c).next().lands(withdraws).refused(acquires).lands(takesOver)
		}},
		{"replacement after its withdrawal", func(c *cell) {
			having(completes)(c).replacement().lands(withdraws).refused(acquires)
		}},
	}
}

// lateWriteCases are about the other writes.
func lateWriteCases() []check {
	return []check{
		{"older extension after a newer one", func(c *cell) {
			c.start().holds(extends).lands(extendsFurther).late(true).lands(completes)
		}},
		{"extension after the own park", func(c *cell) {
			a := c.start().holds(extends).lands(parks).late(true)
			a.holds(resolves(protocol.Released)).lands(extendsFurther).late(false)
			a.lands(resolves(protocol.Released)).refused(extendsFurther)
		}},
		{"another call's park after an extension", func(c *cell) {
			c.start().holds(lapses).lands(extends).late(false).lands(completes)
		}},
		{"another call's park after the end", func(c *cell) { c.start().holds(lapses).lands(completes).late(false) }},
		{"resolution after the late outcome", func(c *cell) {
			having(parks)(c).holds(resolves(protocol.Released)).lands(completes).late(false)
		}},
		{"every seen write after deletion", func(c *cell) {
			for _, m := range []move{resolves(protocol.Completed), lapses} {
				having(parks)(c).holds(m).deleted().late(false)
			}
		}},
	}
}

// lateCases: a parked attempt may still record how a step or itself ended, until another one has run
// or the question was decided. It can neither begin anything nor make itself repeatable.
func lateCases(steps bool) []check {
	refused := map[string]bool{"uncertain release": true, "begin mark": true}
	var cases []check
	for _, p := range []named{{"the own park", parks}, {"another call's park", lapses}} {
		for _, w := range append(ownWrites(steps), named{"large completion", completesInParts}) {
			cases = append(cases, check{w.name + " after " + p.name, func(c *cell) {
				for _, a := range []*attempt{c.start(), c.start(notRepeatable)} {
					a.lands(p.make).holds(w.make).late(!refused[w.name])
				}
			}})
		}
	}
	return slices.Concat(cases, []check{
		{"park, late park, then completion", func(c *cell) { having(lapses, parks, completes)(c).refused(fails) }},
		{"another call's park keeps a repeatable attempt's declaration strict", func(c *cell) {
			a := having(lapses)(c)
			equal(c, "Repeat", protocol.NotRepeatable, c.get(a.id()).Repeat)
			a.lands(completes)
		}},
	}, withSteps(steps,
		check{"completion in an open step", func(c *cell) { c.start().lands(begins, lapses, completes) }},
		check{"step of a parked attempt", func(c *cell) {
			for _, late := range []move{charges, chargesAtLength} {
				a := having(begins, parks)(c).refused(func(a *attempt) write { return a.begin("ship") })
				a.again(late).lands(completes)
			}
		}},
		check{"first step of a parked attempt", func(c *cell) {
			w := having(lapses)(c).step("charge", []byte("ch_1"))
			w.First = true
			c.lands(w)
		}},
		check{"step of a resolved attempt", func(c *cell) {
			having(begins, parks, resolves(protocol.Released))(c).refused(charges)
		}}))
}
