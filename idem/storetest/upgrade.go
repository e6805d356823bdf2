package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// upgradeCases: a result that is added to an outcome that was recorded without it.
func upgradeCases(h Harness) []check {
	steps := !h.WithoutSteps
	large := string(noise(450 << 10))
	return []check{
		{"is added to the outcome that was recorded without it", func(c *cell) {
			for _, result := range []string{"", "outcome", large} {
				for _, kept := range []string{"", `{"status":201}`} {
					a := c.start()
					fact := a.without(kept)
					c.lands(fact)
					w := a.add(fact, result)
					c.lands(w)
					c.lands(w) // once more, as after a lost reply
					c.refused(c.fresh(func(r *protocol.Record) { r.ID = a.id() }).acquire())
				}
			}
		}},
		{"leaves the expiry and the times as they are", func(c *cell) {
			a := c.start()
			fact := a.without("kept")
			c.lands(fact)
			before := c.get(a.id())
			w := a.add(fact, large)
			w.Ending.ExpiresAt = w.Ending.ExpiresAt.Add(time.Hour)
			c.lands(w)
			after := c.get(a.id())
			equal(c, "ExpiresAt", before.ExpiresAt, after.ExpiresAt)
			equal(c, "UpdatedAt", before.UpdatedAt, after.UpdatedAt)
			equal(c, "ResponseVersion", before.ResponseVersion, after.ResponseVersion)
		}},
		{"is refused where that outcome is not", func(c *cell) {
			a := c.fresh()
			fact := a.without("kept")
			c.refused(a.add(fact, "outcome"))
			for _, s := range standing(steps) {
				a := s.make(c)
				c.refused(a.add(a.without("kept"), large))
			}
		}},
		{"is refused to another owner", func(c *cell) {
			a := c.start()
			fact := a.without("kept")
			c.lands(fact)
			w := a.add(fact, large)
			w.Owner = newID()
			c.refused(w)
		}},
		{"is refused by an outcome that has its result", func(c *cell) {
			a := c.start()
			whole := a.complete("outcome")
			c.lands(whole)
			c.refused(a.add(whole, large))
		}},
		{"is added once", func(c *cell) {
			a := c.start()
			fact := a.without("kept")
			c.lands(fact)
			c.lands(a.add(fact, large))
			c.refused(a.add(fact, "another"))
		}},
		{"of a replaced outcome is refused", func(c *cell) {
			a := c.start()
			fact := a.without("kept")
			c.lands(fact)
			c.now = c.now.Add(retention + time.Hour)
			b := a.replacement()
			c.lands(b.acquire())
			c.refused(a.add(fact, large))
			theirs := b.without("theirs")
			c.lands(theirs)
			c.refused(a.add(fact, large))
			c.lands(b.add(theirs, "outcome"))
		}},
		{"of a deleted outcome brings nothing back", func(c *cell) {
			a := c.start()
			fact := a.without("kept")
			c.lands(fact)
			c.delete(a.id())
			c.refused(a.add(fact, large))
		}},
		{"does not complete an attempt that runs or is parked", func(c *cell) {
			a := c.start()
			fact := a.without("kept")
			c.refused(a.add(fact, "outcome"))
			c.lands(a.park())
			c.refused(a.add(fact, "outcome"))
			c.lands(fact)
			c.lands(a.add(fact, "outcome"))
		}},
	}
}
