package storetest

import (
	"slices"
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
		{"of an expired record is gone with all else", func(c *cell) {
			for _, end := range []move{completes, fails, releasesInDoubt} {
				a := having(end)(c)
				c.now = c.get(a.id()).ExpiresAt
				equal(c, "Expired", true, c.get(a.id()).Expired(c.now))
				b := a.replacement()
				notRepeatable(&b.claim.Record)
				b.lands(acquires)
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
		check{"of a completed record that had steps", func(c *cell) {
			a := having(ships, completes)(c)
			c.now = c.get(a.id()).ExpiresAt
			a.lands(replaces)
		}}))
}
