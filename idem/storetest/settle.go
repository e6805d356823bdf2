package storetest

import (
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// settleCases park and resolve records from outside the attempt.
func settleCases(steps bool) []check {
	needed, others := verdicts()
	all := slices.Concat(needed, others)
	return slices.Concat([]check{
		{"another call's park keeps the owner and the lease", func(c *cell) { c.start().lands(lapses) }},
		{"another call's park of what it has not seen", func(c *cell) {
			s := c.start().lapse()
			s.Seen = newID()
			c.refused(s)
		}},
		{"another call's park of an ended record", func(c *cell) {
			for _, end := range []move{completes, fails, parks} {
				having(end)(c).refused(lapses)
			}
		}},
		{"resolution of what it has not seen", func(c *cell) {
			having(parks)(c).holds(resolves(protocol.Completed)).lands(parks).late(false).lands(resolves(protocol.Completed))
		}},
		{"resolution of a claim replaces the owner", func(c *cell) {
			for _, to := range outcomes {
				c.start().again(resolves(to)).refused(completes)
			}
		}},
		{"resolution of a claim that was renewed since", func(c *cell) {
			c.start().holds(resolves(protocol.Released)).lands(extends).late(false)
		}},
		{"resolution of a record that has ended", func(c *cell) {
			for _, s := range standing(steps) {
				a := s.make(c)
				if state := c.ref[a.id()].State; state != protocol.Unknown && state != protocol.InProgress {
					a.refused(resolves(protocol.Completed), resolves(protocol.Released))
				}
			}
		}},
		{"resolution with a large result", func(c *cell) {
			a := having(parks)(c)
			r := a.resolve(protocol.Completed)
			r.Ending.Result = noise(300 << 10)
			c.lands(r)
			a.refused(completes)
		}},
		{"resolution over another one takes its reference away, not the attempt's", func(c *cell) {
			for said, left := range map[string]string{"": "pay_0", "pay_1": ""} {
				for _, to := range outcomes {
					a := having(refers("pay_0"), parks, resolvesWith(protocol.Failed, said))(c)
					a.lands(replacing(resolvesWith(to, "")))
					equal(c, "Ref", left, c.get(a.id()).Ref)
				}
			}
		}},
	}, withSteps(steps,
		check{"resolution clears the begin marks and keeps the steps", func(c *cell) {
			having(ships, begins, lapses, resolves(protocol.Released))(c).next().lands(acquires, begins)
		}},
		check{"resolution records what an interrupted step did", func(c *cell) {
			beginsBook := func(a *attempt) write { return a.begin("book") }
			for _, done := range all {
				a := having(begins, beginsBook, lapses)(c)
				r := a.resolve(protocol.Released)
				r.ClearSteps, r.Ending.ExpiresAt = []string{"book"}, time.Time{}
				// No step is made of what the record does not have.
				r.Steps = []protocol.StepWrite{done, {Name: "absent", Result: []byte("1")}}
				c.onlyOneOfTwo(r)
				a.next().lands(acquires).refused(begins).lands(beginsBook)
			}
		}},
		check{"resolution over another one replaces its verdict on a step", func(c *cell) {
			for _, first := range all {
				for _, second := range append(all, protocol.StepWrite{}) {
					a := having(ships, begins, lapses, recordsOfStep(first))(c)
					c.onlyOneOfTwo(replacing(over(second))(a).(settle))
					a.lands(takesOver)
				}
			}
		}},
		check{"resolution records again what an attempt could not read", func(c *cell) {
			for _, verdict := range needed {
				for _, second := range []protocol.StepWrite{{Name: "charge", Result: []byte("ch_1")}, {}} {
					a := having(ships)(c).resolvedStep(verdict)
					a.next().lands(acquires, unreads, parks).again(over(second))
				}
			}
		}},
		check{"resolution to completed leaves what would have to be undone", func(c *cell) {
			a := having(ships, func(a *attempt) write { return a.step("book", []byte("b_1")) }, lapses)(c)
			done := []protocol.StepWrite{
				{Name: "book", Omitted: true, Compensates: true, Failure: &protocol.Failure{Message: "not kept"}},
			}
			completed := func(a *attempt) write {
				r := a.resolve(protocol.Completed)
				r.Steps = done
				return r
			}
			a.again(completed).lands(replacing(completed))
			equal(c, "NeedsCompensation", true, c.get(a.id()).Steps["book"].NeedsCompensation())
			a.lands(replacing(resolves(protocol.Failed)))
		}}))
}

// resolvesWith resolves a record with a reference, or without any.
func resolvesWith(to protocol.State, ref string) move {
	return func(a *attempt) write {
		r := a.resolve(to)
		r.Ending.Ref = ref
		return r
	}
}

// replacing is a resolution over an earlier one.
func replacing(m move) move {
	return func(a *attempt) write {
		r := m(a).(settle)
		r.Again = true
		return r
	}
}

// over resolves a record to released, with a verdict on the step "charge" or without any, and with
// one on "ship", which the attempt has recorded itself.
func over(verdict protocol.StepWrite) move {
	return func(a *attempt) write {
		r := recordsOfStep(verdict, protocol.StepWrite{Name: "ship", Result: []byte("s_2")})(a).(settle)
		if verdict.Name == "" {
			r.Steps, r.ClearSteps = nil, []string{"charge"}
		}
		return r
	}
}

// onlyOneOfTwo sends a resolution twice, and then another one that has seen the same.
func (c *cell) onlyOneOfTwo(r settle) {
	c.Helper()
	late := r
	late.Write = newID()
	late.Owner = late.Write
	c.twice(r)
	c.refused(late)
}
