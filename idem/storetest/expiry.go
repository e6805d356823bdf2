package storetest

import (
	"slices"
)

// expiryCases: what carries an expiry, and that an open question carries none. Each write is
// followed by a read, which has the expiry that the reference says.
func expiryCases(steps bool) []check {
	return slices.Concat([]check{
		{"moves along with each extension", func(c *cell) { c.start().lands(extends, extendsFurther) }},
		{"is not given to a not repeatable attempt by its extension", func(c *cell) {
			c.start(notRepeatable).lands(extends)
		}},
		{"is not moved by an older extension", func(c *cell) { c.start().holds(extends).lands(extendsFurther).late(true) }},
		{"is removed by the own park", func(c *cell) { c.start().lands(parks) }},
		{"is removed by another call's park", func(c *cell) { c.start().lands(lapses) }},
		{"is removed by another call's park of a released record", func(c *cell) {
			c.start().lands(releasesInDoubt, lapses)
		}},
		{"is set by each end", func(c *cell) {
			for _, end := range []move{completes, fails, releasesInDoubt} {
				c.start(notRepeatable).lands(end)
			}
		}},
		{"is set by a resolution", func(c *cell) {
			for _, to := range outcomes {
				c.start().lands(parks, resolves(to))
			}
		}},
		{"is replaced by a takeover", func(c *cell) { c.start().lands(releases, takesOver) }},
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
		check{"is removed by a step", func(c *cell) { c.start().lands(ships) }},
		check{"is removed by a begin mark", func(c *cell) { c.start().lands(begins) }},
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
