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
	b := a.c.fresh(func(r *protocol.Record) { r.ID = a.id() })
	b.claim.Record.Attempt = a.seen().Attempt + 1
	b.claim.Seen = a.seen().Write
	return b
}

// unseen is an attempt in atomic mode on the same key that has seen nothing.
func (a *attempt) unseen() *attempt {
	return a.c.fresh(func(r *protocol.Record) { r.ID = a.id() })
}

// commitCases: outcomes that nobody claimed, and ends that fence what was sent before.
func commitCases(h Harness) []check {
	steps := !h.WithoutSteps
	// later is past every expiry that the cases give.
	later := func(c *cell) { c.now = c.now.Add(retention + time.Hour) }
	return []check{
		{"without a claim creates the record", func(c *cell) {
			for _, f := range []func(*attempt) finish{
				func(a *attempt) finish { return a.complete("outcome") },
				func(a *attempt) finish { return a.complete("") },
				func(a *attempt) finish { return a.complete(string(noise(450 << 10))) },
				func(a *attempt) finish { return a.fail() },
			} {
				a := c.fresh()
				w := a.atomic(f(a))
				c.lands(w)
				c.lands(w) // once more, as after a lost reply
				c.refused(a.unseen().acquire())
			}
		}},
		{"a check record has no key, and no expiry", func(c *cell) {
			check := "#" + newID() + "#"
			a := c.fresh(func(r *protocol.Record) { r.ID = check })
			w := a.atomic(a.complete(""))
			w.Ending.ExpiresAt = time.Time{}
			c.lands(w)
			c.lands(w)
			later(c)
			b := a.unseen()
			c.refused(b.atomic(b.complete("")))
			equal(c, "ExpiresAt", time.Time{}, c.get(check).ExpiresAt)
		}},
		{"without a claim is refused by every record", func(c *cell) {
			for _, s := range standing(steps) {
				a := s.make(c)
				b := a.unseen()
				c.refused(b.atomic(b.complete("theirs")))
				c.refused(b.atomic(b.fail()))
			}
		}},
		{"without a claim replaces nothing that has expired unseen", func(c *cell) {
			for _, s := range standing(steps) {
				a := s.make(c)
				now := c.now
				later(c)
				b := a.unseen()
				c.refused(b.atomic(b.complete("new")))
				c.now = now
			}
		}},
		{"without a claim replaces what it has seen", func(c *cell) {
			for _, s := range standing(steps) {
				a := s.make(c)
				b := a.over()
				w := b.atomic(b.complete("new"))
				c.lands(w)
				c.lands(w)
				equal(c, "Attempt", 2, c.get(a.id()).Attempt)
				equal(c, "number of steps", 0, len(c.get(a.id()).Steps))
			}
		}},
		{"without a claim is refused by what it has not seen", func(c *cell) {
			a := c.start()
			b := a.over()
			c.lands(a.extend(time.Hour))
			c.refused(b.atomic(b.complete("new")))
		}},
		{"without a claim is refused where what it has seen is gone", func(c *cell) {
			a := c.start()
			b := a.over()
			w := b.atomic(b.complete("new"))
			c.delete(a.id())
			c.refused(w)
		}},
		{"without a claim does not touch an earlier outcome", func(c *cell) {
			a := c.fresh()
			c.lands(a.atomic(a.complete(string(noise(450 << 10)))))
			b := a.unseen()
			c.refused(b.atomic(b.complete(string(noise(450 << 10)))))
		}},
		{"only one of two without a claim", func(c *cell) {
			a := c.fresh()
			ws := make([]write, 8)
			for i := range ws {
				b := a.unseen()
				ws[i] = b.atomic(b.complete("outcome"))
			}
			c.oneWins(ws...)
		}},
		{"a claim or an outcome without one", func(c *cell) {
			a, b := c.fresh(), c.fresh()
			b.claim.Record.ID = a.id()
			c.oneWins(a.acquire(), b.atomic(b.complete("outcome")))
		}},
		{"without a claim, taken back, does not land later", func(c *cell) {
			a := c.fresh()
			c.lands(a.withdraw())
			c.refused(a.atomic(a.complete("late")))
			// Nor does it over the expired record that it could have replaced.
			b := c.start()
			c.lands(b.complete("old"))
			later(c)
			d := b.over()
			d.claim.Replace = true
			w := d.atomic(d.complete("late"))
			c.lands(d.withdraw())
			c.refused(w)
		}},
		{"taken back does not undo an outcome without a claim", func(c *cell) {
			a := c.fresh()
			c.lands(a.atomic(a.complete("outcome")))
			c.refused(a.withdraw())
		}},
		{"an end under a new owner fences what the attempt has sent", func(c *cell) {
			for _, end := range []func(*attempt) finish{
				func(a *attempt) finish { return a.complete(string(noise(450 << 10))) },
				func(a *attempt) finish { return a.fail() },
				func(a *attempt) finish { return a.release(true) },
				func(a *attempt) finish { return a.park() },
			} {
				a := c.start()
				sent := []write{a.complete("late"), a.fail(), a.release(false), a.park(), a.extend(2 * lease)}
				w := end(a)
				w.NewOwner = newID()
				c.lands(w)
				c.lands(w)
				equal(c, "Owner", w.NewOwner, c.get(a.id()).Owner)
				for _, s := range sent {
					c.refused(s)
				}
				if st := a.seen().State; st == protocol.Released {
					c.lands(a.lapse()) // by a stricter call
					for _, s := range sent {
						c.refused(s)
					}
				}
			}
			// Of what another call has parked.
			a := c.start()
			sent := a.complete("late")
			c.lands(a.lapse())
			w := a.park()
			w.NewOwner = newID()
			c.lands(w)
			c.refused(sent)
		}},
		{"writes that commit without a claim", func(c *cell) {
			if c.h.Unit == nil {
				c.Skip("the harness has no Unit: only that the store refuses units is tested")
			}
			a := c.fresh()
			for _, lands := range []bool{true, false} {
				value, applied, err := c.h.Unit(c.ctx)
				c.must(err)
				b := a.unseen()
				w := b.atomic(b.complete("outcome"))
				w.Unit = value
				if lands {
					c.lands(w)
				} else {
					c.refused(w)
				}
				ok, err := applied(c.ctx)
				c.must(err)
				equal(c, "applied", lands, ok)
			}
		}},
	}
}
