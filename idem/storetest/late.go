package storetest

import (
	"strings"

	"github.com/idem-go/idempotency/idem/protocol"
)

// lateCases: a parked attempt may still say how it ended, while nobody has run or
// decided since.
func lateCases(steps bool) []check {
	parks := []struct {
		name string
		park func(a *attempt) write
	}{
		{"the own park", func(a *attempt) write { return a.park() }},
		{"another call's park", func(a *attempt) write { return a.lapse() }},
	}
	ends := []struct {
		name string
		make func(a *attempt) write
	}{
		{"completion", func(a *attempt) write { return a.complete("late") }},
		{"large completion", func(a *attempt) write { return a.complete(strings.Repeat("late", 1e5)) }},
		{"failure", func(a *attempt) write { return a.fail() }},
		{"excluded release", func(a *attempt) write { return a.release(false) }},
		{"park", func(a *attempt) write { return a.park() }},
	}
	var cases []check
	for _, p := range parks {
		for _, e := range ends {
			cases = append(cases, check{e.name + " after " + p.name, func(c *cell) {
				a := c.start(notRepeatable)
				c.lands(p.park(a))
				equal(c, "Owner", a.claim.Record.Owner, c.get(a.id()).Owner)
				c.lands(e.make(a))
			}})
		}
		cases = append(cases, check{"uncertain release after " + p.name, func(c *cell) {
			a := c.start()
			c.lands(p.park(a))
			c.refused(a.release(true))
			equal(c, "State", protocol.Unknown, c.get(a.id()).State)
		}})
	}
	cases = append(cases, []check{
		{"park, late park, then completion", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			c.lands(a.park())
			c.lands(a.complete("late"))
			c.refused(a.fail())
		}},
		{"another call's park keeps a repeatable attempt's declaration strict", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			equal(c, "Repeat", protocol.NotRepeatable, c.get(a.id()).Repeat)
			c.lands(a.complete("late"))
			equal(c, "Repeat", protocol.NotRepeatable, c.get(a.id()).Repeat)
		}},
	}...)
	if steps {
		cases = append(cases, check{"completion in an open step", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.lands(a.lapse())
			c.lands(a.complete("late"))
		}}, check{"step of a parked attempt", func(c *cell) {
			for _, large := range []bool{false, true} {
				a := c.start()
				c.lands(a.begin("charge"))
				c.lands(a.park())
				c.refused(a.begin("ship"))
				result := []byte("ch_1")
				if large {
					result = noise(4 << 10)
				}
				late := a.step("charge", result)
				c.lands(late)
				equal(c, "State", protocol.Unknown, c.get(a.id()).State)
				equal(c, "Begun", false, c.get(a.id()).Steps["charge"].Begun)
				c.lands(late)
				c.lands(a.complete("late"))
			}
		}}, check{"first step of a parked attempt", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			w := a.step("charge", []byte("ch_1"))
			w.First = true
			c.lands(w)
		}}, check{"step of a resolved attempt", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.lands(a.park())
			c.lands(a.resolve(protocol.Released))
			c.refused(a.step("charge", []byte("ch_1")))
		}})
	}
	return cases
}
