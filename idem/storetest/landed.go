package storetest

import (
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// landing is a write that is about to land.
type landing struct {
	name string
	from func(c *cell) *attempt
	move move
}

func (l landing) make(c *cell) write { return l.move(l.from(c)) }

// landings are all kinds of write.
func landings(steps bool) []landing {
	ls := []landing{
		{"claim", unclaimed, acquires},
		{"takeover", having(), takesOver},
		{"replacement", having(completes), replaces},
		{"withdrawal of a claim that never came", unclaimed, withdraws},
		{"withdrawal of a claim that landed", having(), withdraws},
		{"withdrawal of a takeover that never came", having(), withdrawsNext},
		{"withdrawal of a replacement that never came", having(completes), func(a *attempt) write {
			return a.replacement().withdraw()
		}},
		{"extension", having(), extends},
		{"reference", having(), refers("pay_1")},
		{"completion", having(), completes},
		{"large completion", having(), completesInParts},
		{"failure", having(), fails},
		{"release", having(), releases},
		{"uncertain release", having(), releasesInDoubt},
		{"park", having(), parks},
		{"late completion", having(parks), completes},
		{"another call's park", having(), lapses},
		{"another call's park of a released record", having(releasesInDoubt), lapses},
		{"end under a new owner", having(), func(a *attempt) write {
			w := a.park()
			w.NewOwner = newID()
			return w
		}},
		{"outcome without a claim", unclaimed, commits(ended("outcome"))},
		{"outcome without a claim over what it has seen", func(c *cell) *attempt { return c.start().over() },
			commits(ended("outcome"))},
		{"resolution to completed", having(parks), resolves(protocol.Completed)},
		{"resolution to failed", having(parks), resolves(protocol.Failed)},
		{"resolution to released", having(parks), resolves(protocol.Released)},
	}
	if steps {
		ls = append(ls, landing{"acceptance", unclaimed, accepts}, landing{"step", having(), charges},
			landing{"begin mark", having(), begins},
			landing{"step over its begin mark", having(begins), charges})
	}
	return ls
}

// lostReplyCases repeat each write after it was applied, as a caller does that got
// no reply: it has landed, and nothing changes any more.
func lostReplyCases(steps bool) []check {
	var cases []check
	for _, l := range landings(steps) {
		cases = append(cases, check{l.name, func(c *cell) { l.from(c).again(l.move).late(true) }})
	}
	return cases
}

// writeIDCases: only the write itself counts as landed, nothing else of the same
// owner's and nothing of another owner's, as the cases of fencing and of steps have it too.
func writeIDCases(steps bool) []check {
	return slices.Concat([]check{
		{"a write that was claimed over since has landed", claimedOver},
		{"a claim or an extension that was claimed over since is no leave to run", func(c *cell) {
			a := c.start()
			b := a.next().lands(acquires)
			a.refused(acquires, completes)
			b.holds(extends).late(true).lands(takesOver).refused(acquires).late(false)
		}},
		{"another claim of the own owner is not this one", func(c *cell) {
			c.start().lands(extends).refused(func(a *attempt) write {
				again := *a
				again.claim.Record.Write = newID()
				return again.acquire()
			})
		}},
		{"another call's park is not a third call's", func(c *cell) {
			c.start().lands(lapses).refused(func(a *attempt) write {
				s := a.lapse()
				s.Seen = a.claim.Record.Write
				return s
			})
		}},
		{"a write does not land again after a later one", func(c *cell) {
			c.start().again(parks).lands(completes).late(false)
		}},
		{"a claim does not land again after its release", func(c *cell) { c.start().lands(releases).refused(acquires) }},
		{"a takeover does not land again after its end", func(c *cell) {
			c.start().next().lands(acquires, completes).refused(acquires)
		}},
		{"a resolution does not land again after a new claim", func(c *cell) {
			a := having(parks)(c).again(resolves(protocol.Released))
			a.lands(takesOver).late(true)  // known to have landed, it changes nothing
			a.lands(takesOver).late(false) // not known any more
		}},
	}, withSteps(steps,
		check{"a step counts as landed after later writes", func(c *cell) {
			a := c.start().again(charges)
			for _, m := range []move{ships, extends, takesOver} {
				a.lands(m).late(true)
			}
		}},
		check{"a resolution that recorded a step counts as landed after later claims", func(c *cell) {
			a := having(begins, lapses)(c).again(recordsOfStep(protocol.StepWrite{Name: "charge", Result: noise(5 << 10)}))
			for range 2 {
				b := a.next().lands(acquires)
				a.late(true)
				b.lands(releasesInDoubt)
				a.late(true)
			}
			a.next().lands(acquires, completes)
			a.late(false) // not known any more
		}},
		check{"a begin mark is leave to run only under its claim", func(c *cell) {
			for _, end := range []move{takesOver, lapses, releasesInDoubt} {
				c.start().again(begins).lands(extends).late(true).lands(end).late(false)
			}
		}}))
}

// claimedOver: the retry of a write after a lost reply finds that others have claimed the record since.
func claimedOver(c *cell) {
	for _, end := range []move{releases, releasesInDoubt} {
		a := c.start().again(end)
		b := a.next().lands(acquires)
		for _, m := range []move{nil, extends, completes} {
			if m != nil {
				b.lands(m)
			}
			a.late(true)
		}
	}
	having(parks)(c).after(2 * lease).again(resolves(protocol.Released)).lands(takesOver).late(true)
	c.start().again(completes).lands(replaces).late(true)
	c.fresh().again(withdraws).lands(takesOver).late(true)
}

// recordsOfStep resolves a record to released, and records what its interrupted step did.
func recordsOfStep(verdicts ...protocol.StepWrite) move {
	return func(a *attempt) write {
		r := a.resolve(protocol.Released)
		r.ClearSteps, r.Ending.ExpiresAt, r.Steps = nil, time.Time{}, verdicts
		return r
	}
}
