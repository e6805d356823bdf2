package storetest

import (
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// expiryCases: what carries an expiry, and that an open question carries none. Each write, of the other
// groups too, is followed by a read, which has the expiry that the reference says.
func expiryCases(steps bool) []check {
	return slices.Concat([]check{
		{"is not given to a not repeatable attempt by its extension", func(c *cell) {
			c.start(notRepeatable).lands(extends)
		}},
		{"is set by each end", func(c *cell) {
			for _, end := range []move{completes, fails, releasesInDoubt} {
				c.start(notRepeatable).lands(end)
			}
		}},
		{"is removed by a takeover that carries none", func(c *cell) {
			b := having(releases)(c).next()
			notRepeatable(&b.claim.Record)
			b.lands(acquires)
		}},
		{"of an expired record is removed with all else", func(c *cell) {
			for _, end := range []move{completes, fails, releasesInDoubt} {
				a := having(end)(c)
				c.now = c.get(a.id()).ExpiresAt
				equal(c, "Expired", true, c.get(a.id()).Expired(c.now))
				b := a.replacement()
				notRepeatable(&b.claim.Record)
				b.lands(acquires)
			}
		}},
		{"is not that of an open question, whatever its write says", func(c *cell) {
			for _, opens := range []move{parks, lapses} {
				having(expiring(opens))(c)
			}
		}},
		{"never hides a record from a read or a claim", func(c *cell) {
			a := having(completes)(c)
			c.now = c.now.Add(1000 * retention)
			c.check(a.id())
			a.unseen().refused(acquires)
		}},
	}, withSteps(steps,
		check{"is not set again by an extension after a step", func(c *cell) {
			c.start().holds(extends).lands(ships).late(true).lands(extendsFurther)
		}},
		check{"is not set again by a takeover or release with steps", func(c *cell) {
			c.start().lands(ships, releasesInDoubt, takesOver)
		}},
		check{"is not that of a record with steps, whatever its write says", func(c *cell) {
			for _, opens := range []move{releases, releasesInDoubt, resolves(protocol.Released)} {
				having(ships, expiring(opens))(c)
			}
		}},
		check{"of a completed record that had steps", func(c *cell) {
			a := having(ships, completes)(c)
			c.now = c.get(a.id()).ExpiresAt
			a.lands(replaces)
		}}))
}

// expiring gives the write's ending an expiry.
func expiring(m move) move {
	return func(a *attempt) write {
		switch w := m(a).(type) {
		case finish:
			w.Ending.ExpiresAt = expiry(a.c.now)
			return w
		case settle:
			w.Ending.ExpiresAt = expiry(a.c.now)
			return w
		default:
			return w
		}
	}
}

// keptFor is how much longer than its retention a record is kept.
const keptFor = 100 * 24 * time.Hour

func prolongs(a *attempt) write        { return a.prolong(keptFor) }
func prolongsFurther(a *attempt) write { return a.prolong(2 * keptFor) }

// prolongCases: what has ended is kept for longer, with its result, until it has expired.
func prolongCases(h Harness) []check {
	if _, ok := h.Store.(protocol.AdminStore); !ok {
		return []check{{"none", func(c *cell) {
			c.Skip("the store is no protocol.AdminStore: that records are kept for longer is not tested")
		}}}
	}
	return []check{
		{"whatever has ended is kept, and what is open has no end", func(c *cell) {
			for _, s := range standing(!h.WithoutSteps) {
				a := s.make(c)
				if c.ref[a.id()].Ended() {
					a.again(prolongs)
				} else {
					a.refused(prolongs)
				}
			}
		}},
		{"with a large result", func(c *cell) { c.start().lands(completesInParts, prolongs, prolongsFurther) }},
		{"with a large result, which a resolution replaces", func(c *cell) {
			large := func(size int) move {
				return func(a *attempt) write {
					r := a.resolve(protocol.Completed)
					r.Ending.Result = noise(size)
					return r
				}
			}
			having(parks, large(20<<10), prolongs)(c).again(replacing(large(21 << 10)))
		}},
		{"no record", func(c *cell) {
			having(completes)(c).holds(prolongs).deleted().late(false)
		}},
		{"kept as long already", func(c *cell) {
			a := having(completes, prolongs)(c)
			kept := c.get(a.id())
			same := a.prolong(0)
			same.ExpiresAt = kept.ExpiresAt.UTC()
			c.lands(a.prolong(0))
			c.lands(same)
			equal(c, "Write", kept.Write, c.get(a.id()).Write)
		}},
		{"of what it has not seen", func(c *cell) {
			a := having(completes)(c)
			two := a.prolong(2 * keptFor)
			a.again(prolongs)
			c.refused(two)
			a.late(true)
		}},
		{"expired", func(c *cell) {
			a, b := having(completes)(c).holds(prolongs), having(completes)(c)
			c.now = c.ref[a.id()].ExpiresAt.Add(-time.Second) // each write takes one
			a.late(false)
			c.now = c.ref[b.id()].ExpiresAt.Add(-time.Second - time.Millisecond)
			b.lands(prolongs)
		}},
		{"a call that took it for expired does not replace it", func(c *cell) {
			having(completes)(c).holds(replaces).lands(prolongs).late(false)
			having(completes)(c).holds(prolongs).lands(replaces).late(false)
		}},
		{"the own end is known to have landed", func(c *cell) {
			for _, end := range []move{completes, fails, releases} {
				c.start().again(end).lands(prolongs).late(true)
			}
			having(parks)(c).again(resolves(protocol.Completed)).lands(prolongs).late(true).refused(completes)
		}},
		{"a result that would not last as long is not added", func(c *cell) {
			a := c.start().holds(omits("")).late(true)
			a.holds(adds(string(noise(300 << 10)))).lands(prolongs).late(false)
		}},
		{"with its entry, once", func(c *cell) {
			a := having(completes)(c)
			note := func(w prolong) prolong {
				w.Audit = a.audit(protocol.ChangeExtended, protocol.Completed)
				w.Audit.Until = w.ExpiresAt
				return w
			}
			w, lost := note(a.prolong(keptFor)), note(a.prolong(2*keptFor))
			c.twice(w)
			c.refused(lost)
			c.lands(note(a.prolong(0)))
			p, err := c.store.(protocol.AdminStore).AuditOf(c.ctx, a.id(), "")
			c.must(err)
			c.sameAudit([]protocol.Audit{*w.Audit}, p)
		}},
	}
}
