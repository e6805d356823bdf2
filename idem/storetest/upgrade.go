package storetest

import "time"

// upgradeCases: a result that is added to an outcome that was recorded without it.
func upgradeCases(h Harness) []check {
	large := string(noise(300 << 10))
	// recorded is an attempt whose outcome was recorded without its result.
	recorded := func(c *cell, kept string) (*attempt, finish) {
		a := c.start()
		fact := a.without(kept)
		c.lands(fact)
		return a, fact
	}
	return []check{
		{"is added to the outcome that was recorded without it", func(c *cell) {
			for _, result := range []string{"", "outcome", large} {
				for _, kept := range []string{"", `{"status":201}`} {
					a, fact := recorded(c, kept)
					a.again(func(a *attempt) write { return a.add(fact, result) }).unseen().refused(acquires)
				}
			}
		}},
		{"leaves the expiry and the times as they are", func(c *cell) {
			a, fact := recorded(c, "kept")
			w := a.add(fact, large)
			w.Ending.ExpiresAt = w.Ending.ExpiresAt.Add(time.Hour)
			c.lands(w)
		}},
		{"is refused where that outcome is not", func(c *cell) {
			a := c.fresh()
			c.refused(a.add(a.without("kept"), "outcome"))
			for _, s := range standing(!h.WithoutSteps) {
				a := s.make(c)
				c.refused(a.add(a.without("kept"), large))
			}
		}},
		{"is refused to another owner", func(c *cell) {
			a, fact := recorded(c, "kept")
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
			a, fact := recorded(c, "kept")
			c.lands(a.add(fact, large))
			c.refused(a.add(fact, "another"))
		}},
		{"of a replaced outcome is refused", func(c *cell) {
			a, fact := recorded(c, "kept")
			c.now = c.now.Add(retention + time.Hour)
			b := a.replacement().lands(acquires)
			c.refused(a.add(fact, large))
			theirs := b.without("theirs")
			c.lands(theirs)
			c.refused(a.add(fact, large))
			c.lands(b.add(theirs, "outcome"))
		}},
		{"of a deleted outcome brings nothing back", func(c *cell) {
			a, fact := recorded(c, "kept")
			c.delete(a.id())
			c.refused(a.add(fact, large))
		}},
		{"does not complete an attempt that runs or is parked", func(c *cell) {
			a := c.start()
			fact := a.without("kept")
			c.refused(a.add(fact, "outcome"))
			a.lands(parks)
			c.refused(a.add(fact, "outcome"))
			c.lands(fact)
			c.lands(a.add(fact, "outcome"))
		}},
	}
}
