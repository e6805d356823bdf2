package storetest

import (
	"github.com/idem-go/idempotency/idem/protocol"
)

// delayedCases deliver a write that was thought lost after what followed it.
func delayedCases(steps bool) []check {
	cases := []check{
		{"claim after its withdrawal", func(c *cell) {
			a := c.fresh()
			c.lands(a.withdraw())
			c.refused(a.acquire())
			rec := c.get(a.id())
			equal(c, "State", protocol.Released, rec.State)
			equal(c, "Uncertain", false, rec.Uncertain)
		}},
		{"claim after its withdrawal, landed before", func(c *cell) {
			a := c.start()
			c.lands(a.withdraw())
			c.refused(a.acquire())
		}},
		{"claim after its withdrawal and another call's claim", func(c *cell) {
			a := c.fresh()
			c.lands(a.withdraw())
			b := a.next()
			c.lands(b.acquire())
			c.refused(a.acquire())
			c.lands(b.complete("theirs"))
			c.refused(a.acquire())
		}},
		{"claim after its withdrawal, parked by another call before", func(c *cell) {
			a := c.start(notRepeatable)
			c.lands(a.lapse())
			c.lands(a.withdraw())
			c.refused(a.acquire())
			equal(c, "State", protocol.Released, c.get(a.id()).State)
		}},
		{"uncertain withdrawal leaves what another call parked", func(c *cell) {
			a := c.start()
			b := a.next() // of a lapsed claim
			c.lands(b.acquire())
			c.lands(b.lapse())
			c.refused(b.withdraw())
			equal(c, "State", protocol.Unknown, c.get(a.id()).State)
		}},
		{"takeover after its withdrawal", func(c *cell) {
			a := c.start()
			b := a.next()
			w := b.withdraw()
			c.lands(w)
			c.refused(b.acquire())
			rec := c.get(a.id())
			equal(c, "Owner", w.Owner, rec.Owner)
			equal(c, "Uncertain", true, rec.Uncertain)
			equal(c, "CreatedAt", a.claim.Record.CreatedAt, rec.CreatedAt.UTC())
		}},
		{"takeover of a released record after its withdrawal", func(c *cell) {
			a := c.start()
			c.lands(a.release(false))
			b := a.next()
			c.lands(b.withdraw())
			c.refused(b.acquire())
			equal(c, "Uncertain", false, c.get(a.id()).Uncertain)
			c.lands(a.next().acquire())
		}},
		{"replacement after its withdrawal", func(c *cell) {
			a := c.start()
			c.lands(a.complete("old"))
			b := a.replacement()
			c.lands(b.withdraw())
			c.refused(b.acquire())
			rec := c.get(a.id())
			equal(c, "State", protocol.Released, rec.State)
			equal(c, "Fingerprint", b.claim.Record.Fingerprint, rec.Fingerprint)
		}},
		{"withdrawal after another call's takeover of the claim", func(c *cell) {
			a := c.start()
			c.lands(a.next().acquire())
			c.refused(a.withdraw())
		}},
		{"withdrawal of a takeover after another call's", func(c *cell) {
			a := c.start()
			b := a.next()
			c.lands(a.next().acquire())
			c.refused(b.withdraw())
		}},
		{"withdrawal of a takeover after an extension", func(c *cell) {
			a := c.start()
			b := a.next()
			c.lands(a.extend(2 * lease))
			c.refused(b.withdraw())
		}},
		{"withdrawal of a takeover after the holder's completion", func(c *cell) {
			a := c.start()
			b := a.next()
			c.lands(a.complete("in time"))
			c.refused(b.withdraw())
		}},
		{"withdrawal of a takeover after deletion", func(c *cell) {
			a := c.start()
			b := a.next()
			w := b.withdraw()
			c.delete(a.id())
			c.refused(w)
			c.refused(b.acquire())
		}},
		{"withdrawal of a replacement after deletion", func(c *cell) {
			a := c.start()
			c.lands(a.complete("old"))
			w := a.replacement().withdraw()
			c.delete(a.id())
			c.refused(w)
		}},
		{"older extension after a newer one", func(c *cell) {
			a := c.start()
			older, newer := a.extend(2*lease), a.extend(3*lease)
			c.lands(newer)
			c.lands(older)
			rec := c.get(a.id())
			equal(c, "LeaseUntil", newer.LeaseUntil, rec.LeaseUntil.UTC())
			equal(c, "Write", newer.Write, rec.Write)
			c.lands(a.complete("done"))
		}},
		{"extension after the end", func(c *cell) {
			a := c.start()
			e := a.extend(2 * lease)
			c.lands(a.complete("done"))
			c.refused(e)
		}},
		{"extension after the own park", func(c *cell) {
			a := c.start()
			e := a.extend(2 * lease)
			c.lands(a.park())
			c.lands(e)
			r := a.resolve(protocol.Released)
			c.lands(a.extend(3 * lease))
			c.refused(r)
			c.lands(a.resolve(protocol.Released))
			c.refused(a.extend(4 * lease))
		}},
		{"park after the own completion", func(c *cell) {
			a := c.start()
			p := a.park()
			c.lands(a.complete("done"))
			c.refused(p)
		}},
		{"completion after a resolution", func(c *cell) {
			a := c.start()
			f := a.complete("late")
			c.lands(a.park())
			c.lands(a.resolve(protocol.Failed))
			c.refused(f)
		}},
		{"another call's park after an extension", func(c *cell) {
			a := c.start()
			p := a.lapse()
			c.lands(a.extend(2 * lease))
			c.refused(p)
			c.lands(a.complete("in time"))
		}},
		{"another call's park after the end", func(c *cell) {
			a := c.start()
			p := a.lapse()
			c.lands(a.complete("in time"))
			c.refused(p)
		}},
		{"resolution after the late outcome", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			r := a.resolve(protocol.Released)
			c.lands(a.complete("late"))
			c.refused(r)
		}},
		{"every seen write after deletion", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			r, l := a.resolve(protocol.Completed), a.lapse()
			c.delete(a.id())
			c.refused(r)
			c.refused(l)
		}},
	}
	if steps {
		cases = append(cases,
			check{"step after a takeover", func(c *cell) {
				a := c.start()
				w := a.step("ship", []byte("x"))
				c.lands(a.next().acquire())
				c.refused(w)
			}},
			check{"another call's park after a step", func(c *cell) {
				a := c.start()
				p := a.lapse()
				c.lands(a.step("ship", nil))
				c.refused(p)
			}},
			check{"withdrawn takeover keeps the steps", func(c *cell) {
				a := c.start()
				c.lands(a.step("ship", []byte("x")))
				b := a.next()
				c.lands(b.withdraw())
				c.refused(b.acquire())
				rec := c.get(a.id())
				equal(c, "step", "x", c.stepResult(rec, "ship"))
				equal(c, "ExpiresAt is zero", true, rec.ExpiresAt.IsZero())
			}},
			check{"withdrawal brings no steps back", func(c *cell) {
				a := c.start()
				c.lands(a.step("ship", []byte("x")))
				b := a.next()
				w := b.withdraw()
				c.lands(a.complete("done"))
				c.delete(a.id())
				c.refused(w)
			}},
			check{"landed and withdrawn takeover keeps the steps", func(c *cell) {
				a := c.start()
				c.lands(a.step("ship", []byte("x")))
				b := a.next()
				c.lands(b.acquire())
				c.lands(b.withdraw())
				equal(c, "step", "x", c.stepResult(c.get(a.id()), "ship"))
			}},
			check{"withdrawn replacement drops the steps", func(c *cell) {
				a := c.start()
				c.lands(a.step("ship", []byte("x")))
				c.lands(a.complete("old"))
				c.lands(a.replacement().withdraw())
				equal(c, "number of steps", 0, len(c.get(a.id()).Steps))
			}})
	}
	return cases
}
