package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// atomic is the outcome of the attempt in atomic mode, which took no claim.
func (a *attempt) atomic(f finish) finish {
	f.Attempt = protocol.Atomic{Claim: a.claim}
	return f
}

// over is an attempt in atomic mode that has seen the record as it is now.
func (a *attempt) over() *attempt {
	b := a.unseen()
	b.claim.Record.Attempt = a.seen().Attempt + 1
	b.claim.Seen = a.seen().Write
	return b
}

// unseen is an attempt in atomic mode on the same key that has seen nothing.
func (a *attempt) unseen() *attempt {
	return a.c.fresh(func(r *protocol.Record) { r.ID = a.id() })
}

// commits is the move that ends an attempt in atomic mode.
func commits(end func(*attempt) finish) move {
	return func(a *attempt) write { return a.atomic(end(a)) }
}

// outcome is the attempt's completion in atomic mode.
func (a *attempt) outcome() finish { return a.atomic(a.complete("outcome")) }

// ended is an attempt's completion with a result.
func ended(result string) func(*attempt) finish {
	return func(a *attempt) finish { return a.complete(result) }
}

// commitCases: outcomes without a claim, and ends that fence what was sent before.
func commitCases(h Harness) []check {
	all := standing(!h.WithoutSteps)
	large := ended(string(noise(300 << 10)))
	commit, failure := commits(ended("outcome")), commits((*attempt).fail)
	kinds := []move{commit, failure}
	if !h.WithoutSteps {
		kinds = append(kinds, accepts, acceptsLittle)
	}
	return []check{
		{"without a claim creates the record", func(c *cell) {
			for _, m := range []move{commit, commits(ended("")), commits(large), failure} {
				c.fresh().again(m).unseen().refused(acquires)
			}
		}},
		{"a check record has no key, and no expiry", func(c *cell) {
			a := c.fresh(func(r *protocol.Record) { r.ID = "#" + newID() + "#" })
			a.again(func(a *attempt) write {
				w := a.atomic(a.complete(""))
				w.Ending.ExpiresAt = time.Time{}
				return w
			})
			a.after(expired).unseen().refused(commits(ended("")))
		}},
		{"without a claim is refused by every record", func(c *cell) {
			for _, s := range all {
				s.make(c).unseen().refused(kinds...)
			}
		}},
		{"without a claim replaces nothing that has expired unseen", func(c *cell) {
			for _, s := range all {
				s.make(c).after(expired).unseen().refused(commit)
			}
		}},
		{"without a claim replaces what it has seen", func(c *cell) {
			for _, m := range kinds {
				for _, s := range all {
					s.make(c).over().again(m)
				}
			}
		}},
		{"without a claim is refused by what it has not seen", func(c *cell) {
			a := c.start()
			b := a.over()
			a.lands(extends)
			b.refused(commit)
		}},
		{"without a claim is refused where what it has seen is deleted", func(c *cell) {
			c.start().over().holds(commit).deleted().late(false)
		}},
		{"without a claim does not touch an earlier outcome", func(c *cell) {
			c.fresh().lands(commits(large)).unseen().refused(commits(large))
		}},
		{"only one of two without a claim", func(c *cell) {
			for _, m := range kinds {
				c.oneOf(c.fresh(), func(a *attempt) write { return m(a.unseen()) })
			}
		}},
		{"a claim or an outcome without one", func(c *cell) {
			for _, m := range kinds {
				a := c.fresh()
				c.oneWins(a.acquire(), m(a.unseen()))
			}
		}},
		{"without a claim, taken back, does not land later", func(c *cell) {
			c.fresh().lands(withdraws).refused(commit)
			// Nor does it over the expired record that it could have replaced.
			b := having(completes)(c).after(expired).over()
			b.claim.Replace = true
			b.holds(commit).lands(withdraws).late(false)
		}},
		{"taken back does not undo an outcome without a claim", func(c *cell) {
			c.fresh().lands(commit).refused(withdraws)
		}},
		{"an end under a new owner fences what the attempt has sent", func(c *cell) {
			for _, end := range []func(*attempt) finish{
				large, (*attempt).fail, func(a *attempt) finish { return a.release(true) }, (*attempt).park,
			} {
				fences(c, c.start(), end)
			}
			// Of what another call has parked.
			a := c.start().holds(completes).lands(lapses)
			w := a.park()
			w.NewOwner = newID()
			c.lands(w)
			a.late(false)
		}},
		{"writes that commit without a claim", func(c *cell) {
			for _, m := range kinds {
				a := c.fresh()
				c.committed(m(a.unseen()).(finish), true)
				c.committed(m(a.unseen()).(finish), false)
			}
		}},
	}
}

// fences ends an attempt under a new owner: nothing that it has sent before lands any more.
func fences(c *cell, a *attempt, end func(*attempt) finish) {
	c.Helper()
	var sent []write
	for _, m := range []move{completes, fails, releases, parks, extends} {
		sent = append(sent, m(a))
	}
	w := end(a)
	w.NewOwner = newID()
	c.twice(w)
	for _, s := range sent {
		c.refused(s)
	}
	if a.seen().State == protocol.Released {
		a.lands(lapses) // by a stricter call
		for _, s := range sent {
			c.refused(s)
		}
	}
}
