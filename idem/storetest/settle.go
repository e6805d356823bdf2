package storetest

import (
	"bytes"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// settleCases park and resolve records from outside the attempt.
func settleCases(steps bool) []check {
	cases := []check{
		{"another call's park keeps the owner and the lease", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			rec := c.get(a.id())
			equal(c, "Owner", a.claim.Record.Owner, rec.Owner)
			equal(c, "LeaseUntil", a.claim.Record.LeaseUntil, rec.LeaseUntil.UTC())
			equal(c, "Attempt", 1, rec.Attempt)
		}},
		{"another call's park of what it has not seen", func(c *cell) {
			a := c.start()
			s := a.lapse()
			s.Seen = newID()
			c.refused(s)
		}},
		{"another call's park of an ended record", func(c *cell) {
			for _, f := range []func(a *attempt) finish{
				func(a *attempt) finish { return a.complete("done") },
				func(a *attempt) finish { return a.fail() },
				func(a *attempt) finish { return a.park() },
			} {
				a := c.start()
				c.lands(f(a))
				c.refused(a.lapse())
			}
		}},
		{"resolution replaces the owner", func(c *cell) {
			for _, to := range []protocol.State{protocol.Completed, protocol.Failed, protocol.Released} {
				a := c.start()
				c.lands(a.lapse())
				r := a.resolve(to)
				c.lands(r)
				rec := c.get(a.id())
				equal(c, "Owner", r.Owner, rec.Owner)
				equal(c, "Ref", "pay_1", rec.Ref)
				equal(c, "State", to, rec.State)
			}
		}},
		{"resolution of what it has not seen", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			r := a.resolve(protocol.Completed)
			c.lands(a.park())
			c.refused(r)
			c.lands(a.resolve(protocol.Completed))
		}},
		{"resolution of a claim replaces the owner", func(c *cell) {
			for _, to := range []protocol.State{protocol.Completed, protocol.Failed, protocol.Released} {
				a := c.start()
				late := a.complete("late")
				r := a.resolve(to)
				c.lands(r)
				c.lands(r)
				c.refused(late)
				equal(c, "Owner", r.Owner, c.get(a.id()).Owner)
			}
		}},
		{"resolution of a claim that was renewed since", func(c *cell) {
			a := c.start()
			r := a.resolve(protocol.Released)
			c.lands(a.extend(2 * lease))
			c.refused(r)
		}},
		{"resolution of a record that has ended", func(c *cell) {
			for _, s := range standing(steps) {
				a := s.make(c)
				if state := c.ref[a.id()].State; state == protocol.Unknown || state == protocol.InProgress {
					continue
				}
				c.refused(a.resolve(protocol.Completed))
				c.refused(a.resolve(protocol.Released))
			}
		}},
		{"resolution with a large result", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			r := a.resolve(protocol.Completed)
			r.Ending.Result = bytes.Repeat([]byte("resolved "), 50_000)
			c.lands(r)
			c.refused(a.complete("late"))
		}},
		{"only one of two resolutions", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			one, two := a.resolve(protocol.Released), a.resolve(protocol.Completed)
			c.lands(one)
			c.refused(two)
			c.lands(a.next().acquire())
			c.refused(two)
		}},
	}
	if steps {
		cases = append(cases, check{"resolution clears the begin marks and keeps the steps", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", []byte("s_1")))
			c.lands(a.begin("charge"))
			c.lands(a.lapse())
			c.lands(a.resolve(protocol.Released))
			rec := c.get(a.id())
			equal(c, "number of steps", 1, len(rec.Steps))
			equal(c, "step", "s_1", c.stepResult(rec, "ship"))
			b := a.next()
			c.lands(b.acquire())
			c.lands(b.begin("charge"))
		}}, check{"resolution records what an interrupted step did", func(c *cell) {
			for _, done := range []protocol.StepWrite{
				{Name: "charge", Result: []byte("ch_1")}, {Name: "charge", Result: bytes.Repeat([]byte("charged "), 50_000)},
				{Name: "charge", Failure: &protocol.Failure{Message: "declined"}}, {Name: "charge", Omitted: true, Failure: &protocol.Failure{Message: "not known"}},
			} {
				a := c.start()
				c.lands(a.begin("charge"))
				c.lands(a.begin("book"))
				c.lands(a.lapse())
				r := a.resolve(protocol.Released)
				r.ClearSteps, r.Ending.ExpiresAt = []string{"book"}, time.Time{}
				r.Steps = []protocol.StepWrite{done, {Name: "absent", Result: []byte("1")}}
				late := r
				late.Write, late.Owner = newID(), newID()
				c.lands(r)
				c.lands(r)
				c.refused(late)
				equal(c, "number of steps", 1, len(c.get(a.id()).Steps))
				equal(c, "Done", true, c.get(a.id()).Steps["charge"].Done())
				b := a.next()
				c.lands(b.acquire())
				c.refused(b.begin("charge"))
				c.lands(b.begin("book"))
			}
		}}, check{"resolution over another one replaces its verdict on a step", func(c *cell) {
			large := bytes.Repeat([]byte("charged "), 50_000)
			verdicts := []protocol.StepWrite{
				{Name: "charge", Result: []byte("ch_1")}, {Name: "charge", Result: large},
				{Name: "charge", Failure: &protocol.Failure{Message: "declined"}}, {Name: "charge", Omitted: true, Failure: &protocol.Failure{Message: "not known"}},
			}
			for _, first := range verdicts {
				for _, second := range append(verdicts, protocol.StepWrite{}) {
					a := c.start()
					c.lands(a.step("ship", []byte("s_1")))
					c.lands(a.begin("charge"))
					c.lands(a.lapse())
					r := a.resolve(protocol.Released)
					r.ClearSteps, r.Ending.ExpiresAt, r.Steps = nil, time.Time{}, []protocol.StepWrite{first}
					c.lands(r)
					over := a.resolve(protocol.Released)
					over.ClearSteps, over.Ending.ExpiresAt, over.Again = nil, time.Time{}, true
					if over.Steps = []protocol.StepWrite{second, {Name: "ship", Result: []byte("s_2")}}; second.Name == "" {
						over.Steps, over.ClearSteps = nil, []string{"charge"}
					}
					late := over
					late.Write, late.Owner = newID(), newID()
					c.lands(over)
					c.lands(over)
					c.refused(late)
					rec := c.get(a.id())
					steps := rec.Steps
					equal(c, "the attempt's own step", "s_1", c.stepResult(rec, "ship"))
					equal(c, "recorded", second.Name != "", steps["charge"].Write == over.Write)
					b := a.next()
					c.lands(b.acquire())
					equal(c, "StepResolved", false, c.get(a.id()).StepResolved("charge"))
				}
			}
		}}, check{"resolution says anew what an attempt could not read", func(c *cell) {
			for _, verdict := range verdicts() {
				for _, clear := range []bool{false, true} {
					a := c.start()
					c.lands(a.step("ship", []byte("s_1")))
					c.resolvedStep(a, verdict)
					b := a.next()
					c.lands(b.acquire())
					c.lands(b.unread("charge"))
					c.lands(b.park())
					over := a.resolve(protocol.Released)
					over.ClearSteps, over.Ending.ExpiresAt = nil, time.Time{}
					if over.Steps = []protocol.StepWrite{{Name: "charge", Result: []byte("ch_1")}, {Name: "ship", Result: []byte("s_2")}}; clear {
						over.Steps, over.ClearSteps = nil, []string{"charge"}
					}
					c.lands(over)
					c.lands(over)
					rec := c.get(a.id())
					steps := rec.Steps
					equal(c, "the attempt's own step", "s_1", c.stepResult(rec, "ship"))
					equal(c, "replaced", !clear, c.stepResult(rec, "charge") == "ch_1")
					equal(c, "StepResolved", !clear, c.get(a.id()).StepResolved("charge"))
					equal(c, "FromResolution", !clear, steps["charge"].FromResolution)
				}
			}
		}}, check{"resolution to completed leaves what would have to be undone", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", []byte("s_1")))
			c.lands(a.step("book", []byte("b_1")))
			c.lands(a.lapse())
			r := a.resolve(protocol.Completed)
			r.Steps = []protocol.StepWrite{{Name: "book", Omitted: true, Compensates: true, Failure: &protocol.Failure{Message: "not kept"}}}
			c.lands(r)
			c.lands(r)
			rec := c.get(a.id())
			equal(c, "number of steps", 1, len(rec.Steps))
			equal(c, "NeedsCompensation", true, rec.Steps["book"].NeedsCompensation())
			over := a.resolve(protocol.Completed)
			over.Again, over.Steps = true, r.Steps
			c.lands(over)
			equal(c, "NeedsCompensation", true, c.get(a.id()).Steps["book"].NeedsCompensation())
			over = a.resolve(protocol.Failed)
			over.Again = true
			c.lands(over)
			equal(c, "number of steps", 0, len(c.get(a.id()).Steps))
		}}, check{"another call's park keeps the steps", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.lands(a.lapse())
			equal(c, "Begun", true, c.get(a.id()).Steps["charge"].Begun)
		}})
	}
	return cases
}
