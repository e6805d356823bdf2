package storetest

import (
	"slices"

	"github.com/idem-go/idempotency/idem/protocol"
)

// lateCases: a parked attempt may still record how it ended, until another one has run or the
// question was decided.
func lateCases(steps bool) []check {
	parkings := []named{{"the own park", parks}, {"another call's park", lapses}}
	ends := []named{
		{"completion", completes}, {"large completion", completesInParts}, {"failure", fails},
		{"excluded release", releases}, {"park", parks},
	}
	var cases []check
	for _, p := range parkings {
		for _, e := range ends {
			cases = append(cases, check{e.name + " after " + p.name, func(c *cell) {
				c.start(notRepeatable).lands(p.make, e.make)
			}})
		}
		cases = append(cases, check{"uncertain release after " + p.name, func(c *cell) {
			having(p.make)(c).refused(releasesInDoubt)
		}})
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
			for _, size := range []int{4, 4 << 10} {
				a := having(begins, parks)(c).refused(func(a *attempt) write { return a.begin("ship") })
				a.again(func(a *attempt) write { return a.step("charge", noise(size)) }).lands(completes)
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
