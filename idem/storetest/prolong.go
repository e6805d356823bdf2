package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// prolongCases: what has ended is kept for longer, with its result, until it has expired.
func prolongCases(h Harness) []check {
	if _, ok := h.Store.(protocol.AdminStore); !ok {
		return []check{{"none", func(c *cell) {
			c.Skip("the store is no protocol.AdminStore: that records are kept for longer is not tested")
		}}}
	}
	const later = 100 * 24 * time.Hour
	return []check{
		{"whatever has ended is kept, and what is open has no end", func(c *cell) {
			for _, s := range standing(!h.WithoutSteps) {
				a := s.make(c)
				if rec := c.ref[a.id()]; !rec.Ended() {
					c.refused(a.prolong(later))
					continue
				}
				w := a.prolong(later)
				c.lands(w)
				c.lands(w)
				equal(c, "ExpiresAt", w.ExpiresAt, c.get(a.id()).ExpiresAt.UTC())
			}
		}},
		{"with a large result", func(c *cell) {
			a := c.start()
			c.lands(a.complete(string(noise(600 << 10))))
			c.lands(a.prolong(later))
			c.lands(a.prolong(2 * later))
		}},
		{"no record", func(c *cell) {
			a := c.start()
			c.lands(a.complete("done"))
			w := a.prolong(later)
			c.delete(a.id())
			c.refused(w)
		}},
		{"kept as long already", func(c *cell) {
			a := c.start()
			c.lands(a.complete("done"))
			c.lands(a.prolong(later))
			kept := c.get(a.id())
			c.lands(a.prolong(0))
			same := a.prolong(0)
			same.ExpiresAt = kept.ExpiresAt.UTC()
			c.lands(same)
			after := c.get(a.id())
			equal(c, "Write", kept.Write, after.Write)
			equal(c, "ExpiresAt", kept.ExpiresAt, after.ExpiresAt)
		}},
		{"of what it has not seen", func(c *cell) {
			a := c.start()
			c.lands(a.complete("done"))
			one, two := a.prolong(later), a.prolong(2*later)
			c.lands(one)
			c.refused(two)
			c.lands(one)
		}},
		{"expired", func(c *cell) {
			a, b := c.start(), c.start()
			c.lands(a.complete("done"))
			c.lands(b.complete("done"))
			w := a.prolong(later)
			c.now = c.ref[a.id()].ExpiresAt.Add(-time.Second) // each write takes one
			c.refused(w)
			c.now = c.ref[b.id()].ExpiresAt.Add(-time.Second - time.Millisecond)
			c.lands(b.prolong(later))
		}},
		{"a call that took it for expired does not replace it", func(c *cell) {
			a := c.start()
			c.lands(a.complete("done"))
			late := a.replacement()
			c.lands(a.prolong(later))
			c.refused(late.acquire())
			b := c.start()
			c.lands(b.complete("done"))
			w := b.prolong(later)
			c.lands(b.replacement().acquire())
			c.refused(w)
		}},
		{"the own end is known to have landed", func(c *cell) {
			for _, end := range []func(a *attempt) finish{
				func(a *attempt) finish { return a.complete("done") },
				func(a *attempt) finish { return a.fail() },
				func(a *attempt) finish { return a.release(false) },
			} {
				a := c.start()
				w := end(a)
				c.lands(w)
				c.lands(a.prolong(later))
				c.lands(w)
			}
			a := c.start()
			c.lands(a.park())
			r := a.resolve(protocol.Completed)
			c.lands(r)
			c.lands(a.prolong(later))
			c.lands(r)
			c.refused(a.complete("late"))
		}},
		{"a result that would not last as long is not added", func(c *cell) {
			a := c.start()
			fact := a.without("")
			c.lands(fact)
			add := a.add(fact, string(noise(300<<10)))
			c.lands(a.prolong(later))
			c.refused(add)
			equal(c, "Omitted", true, c.get(a.id()).Omitted)
		}},
		{"with its entry, once", func(c *cell) {
			a := c.start()
			c.lands(a.complete("done"))
			note := func(w prolong) prolong {
				w.Audit = &protocol.Audit{
					ID: a.id(), Entry: newID(), At: c.now, Who: "alice", Why: "a dispute", Change: protocol.ChangeExtended,
					From: protocol.Completed, To: protocol.Completed, Attempt: 1, Until: w.ExpiresAt, ExpiresAt: expiry(c.now),
				}
				return w
			}
			w := note(a.prolong(later))
			lost := note(a.prolong(2 * later))
			c.lands(w)
			c.lands(w)
			c.refused(lost)
			c.lands(note(a.prolong(0)))
			p, err := c.store.(protocol.AdminStore).AuditOf(c.ctx, a.id(), "")
			c.must(err)
			c.sameAudit([]protocol.Audit{*w.Audit}, p)
		}},
	}
}
