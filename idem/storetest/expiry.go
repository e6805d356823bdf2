package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// expiryCases: what carries an expiry, and that an open question carries none.
func expiryCases(steps bool) []check {
	none := func(c *cell, a *attempt) {
		c.Helper()
		if at := c.get(a.id()).ExpiresAt; !at.IsZero() {
			c.fatalf("ExpiresAt: want none, got %v", at)
		}
	}
	some := func(c *cell, a *attempt, want time.Time) {
		c.Helper()
		if at := c.get(a.id()).ExpiresAt; !at.Equal(want) {
			c.fatalf("ExpiresAt: want %v, got %v", want, at)
		}
	}
	cases := []check{
		{"moves along with each extension", func(c *cell) {
			a := c.start()
			some(c, a, a.claim.Record.ExpiresAt)
			for i := range 3 {
				e := a.extend(time.Duration(i+2) * lease)
				c.lands(e)
				some(c, a, e.ExpiresAt)
			}
		}},
		{"is not given to a not repeatable attempt by its extension", func(c *cell) {
			a := c.start(notRepeatable)
			c.lands(a.extend(2 * lease))
			none(c, a)
		}},
		{"is not moved by an older extension", func(c *cell) {
			a := c.start()
			older, newer := a.extend(2*lease), a.extend(3*lease)
			c.lands(newer)
			c.lands(older)
			some(c, a, newer.ExpiresAt)
		}},
		{"is removed by the own park", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			none(c, a)
		}},
		{"is removed by another call's park", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			none(c, a)
		}},
		{"is removed by another call's park of a released record", func(c *cell) {
			a := c.start()
			c.lands(a.release(true))
			c.lands(a.lapse())
			none(c, a)
		}},
		{"is set by each end", func(c *cell) {
			for _, f := range []func(a *attempt) finish{
				func(a *attempt) finish { return a.complete("done") },
				func(a *attempt) finish { return a.fail() },
				func(a *attempt) finish { return a.release(true) },
			} {
				a := c.start(notRepeatable)
				w := f(a)
				c.lands(w)
				some(c, a, w.Ending.ExpiresAt)
			}
		}},
		{"is set by a resolution", func(c *cell) {
			for _, to := range []protocol.State{protocol.Completed, protocol.Failed, protocol.Released} {
				a := c.start()
				c.lands(a.park())
				r := a.resolve(to)
				c.lands(r)
				some(c, a, r.Ending.ExpiresAt)
			}
		}},
		{"is replaced by a takeover", func(c *cell) {
			a := c.start()
			c.lands(a.release(false))
			b := a.next()
			c.lands(b.acquire())
			some(c, a, b.claim.Record.ExpiresAt)
		}},
		{"is removed by a takeover that carries none", func(c *cell) {
			a := c.start()
			c.lands(a.release(false))
			b := a.next()
			b.claim.Record.Repeat, b.claim.Record.ExpiresAt = protocol.NotRepeatable, time.Time{}
			c.lands(b.acquire())
			none(c, a)
		}},
		{"of an expired record is gone with all else", func(c *cell) {
			for _, f := range []func(a *attempt) finish{
				func(a *attempt) finish { return a.complete("old") },
				func(a *attempt) finish { return a.fail() },
				func(a *attempt) finish { return a.release(true) },
			} {
				a := c.start()
				c.lands(f(a))
				c.now = c.get(a.id()).ExpiresAt
				equal(c, "Expired", true, c.get(a.id()).Expired(c.now))
				b := a.replacement()
				notRepeatable(&b.claim.Record)
				c.lands(b.acquire())
				none(c, a)
				rec := c.get(a.id())
				if rec.Failure != nil || rec.Body.Size != 0 || rec.Uncertain {
					c.fatalf("a replaced record keeps nothing, got %+v", rec)
				}
			}
		}},
		{"never hides a record from a read or a claim", func(c *cell) {
			a := c.start()
			c.lands(a.complete("old"))
			c.now = c.now.Add(1000 * retention)
			c.check(a.id())
			c.refused(c.fresh(func(r *protocol.Record) { r.ID = a.id() }).acquire())
		}},
	}
	if !steps {
		return cases
	}
	return append(cases,
		check{"is removed by a step", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", nil))
			none(c, a)
		}},
		check{"is removed by a begin mark", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			none(c, a)
		}},
		check{"is not set again by an extension after a step", func(c *cell) {
			a := c.start()
			e := a.extend(2 * lease)
			c.lands(a.step("ship", nil))
			c.lands(e)
			none(c, a)
			c.lands(a.extend(3 * lease))
			none(c, a)
		}},
		check{"is not set again by a takeover or release with steps", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", nil))
			c.lands(a.release(true))
			none(c, a)
			b := a.next()
			c.lands(b.acquire())
			none(c, a)
		}},
		check{"of a completed record that had steps", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", []byte("s_1")))
			c.lands(a.complete("old"))
			c.now = c.get(a.id()).ExpiresAt
			c.lands(a.replacement().acquire())
			equal(c, "number of steps", 0, len(c.get(a.id()).Steps))
		}})
}
