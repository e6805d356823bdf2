package storetest

import (
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

type landing struct {
	name string
	make func(c *cell) write
}

// landings are all kinds of write, each about to land.
func landings(steps bool) []landing {
	on := func(name string, f func(a *attempt) write) landing {
		return landing{name, func(c *cell) write { return f(c.start()) }}
	}
	after := func(name string, first, then func(a *attempt) write) landing {
		return landing{name, func(c *cell) write {
			a := c.start()
			c.lands(first(a))
			return then(a)
		}}
	}
	complete := func(a *attempt) write { return a.complete("old") }
	release := func(a *attempt) write { return a.release(true) }
	park := func(a *attempt) write { return a.park() }
	ls := []landing{
		{"claim", func(c *cell) write { return c.fresh().acquire() }},
		on("takeover", func(a *attempt) write { return a.next().acquire() }),
		after("replacement", complete, func(a *attempt) write { return a.replacement().acquire() }),
		{"withdrawal of a claim that never came", func(c *cell) write { return c.fresh().withdraw() }},
		on("withdrawal of a claim that landed", func(a *attempt) write { return a.withdraw() }),
		on("withdrawal of a takeover that never came", func(a *attempt) write { return a.next().withdraw() }),
		after("withdrawal of a replacement that never came", complete,
			func(a *attempt) write { return a.replacement().withdraw() }),
		on("extension", func(a *attempt) write { return a.extend(2 * lease) }),
		on("completion", func(a *attempt) write { return a.complete("done") }),
		on("large completion", func(a *attempt) write { return a.complete(strings.Repeat("large ", 1e5)) }),
		on("failure", func(a *attempt) write { return a.fail() }),
		on("release", func(a *attempt) write { return a.release(false) }),
		on("uncertain release", release),
		on("park", park),
		after("late completion", park, func(a *attempt) write { return a.complete("late") }),
		on("another call's park", func(a *attempt) write { return a.lapse() }),
		after("another call's park of a released record", release, func(a *attempt) write { return a.lapse() }),
		after("resolution to completed", park, func(a *attempt) write { return a.resolve(protocol.Completed) }),
		after("resolution to failed", park, func(a *attempt) write { return a.resolve(protocol.Failed) }),
		after("resolution to released", park, func(a *attempt) write { return a.resolve(protocol.Released) }),
	}
	if steps {
		begin := func(a *attempt) write { return a.begin("charge") }
		ls = append(ls,
			on("step", func(a *attempt) write { return a.step("charge", []byte("ch_1")) }),
			on("begin mark", begin),
			after("step over its begin mark", begin,
				func(a *attempt) write { return a.step("charge", []byte("ch_1")) }))
	}
	return ls
}

// lostReplyCases repeat each write after it was applied, as a caller does that got
// no reply: it has landed, and nothing changes any more.
func lostReplyCases(steps bool) []check {
	var cases []check
	for _, l := range landings(steps) {
		cases = append(cases, check{l.name, func(c *cell) {
			w := l.make(c)
			c.lands(w)
			c.lands(w)
			c.lands(w)
		}})
	}
	return cases
}

// writeIDCases: only the write itself counts as landed, nothing else of the same
// owner's and nothing of anybody else's.
func writeIDCases(steps bool) []check {
	two := func(name string, first, then func(a *attempt) write) check {
		return check{name, func(c *cell) {
			a := c.start()
			c.lands(first(a))
			c.refused(then(a))
		}}
	}
	complete := func(a *attempt) write { return a.complete("first") }
	fail := func(a *attempt) write { return a.fail() }
	release := func(a *attempt) write { return a.release(false) }
	park := func(a *attempt) write { return a.park() }
	cases := []check{
		{"a write that was claimed over since has landed", func(c *cell) {
			for _, end := range []func(a *attempt) write{release, func(a *attempt) write { return a.release(true) }} {
				a := c.start()
				w := end(a)
				c.lands(w)
				b := a.next()
				c.lands(b.acquire())
				c.lands(w) // its retry, after a lost reply
				c.lands(b.extend(2 * lease))
				c.lands(w)
				c.lands(b.complete("theirs"))
				c.lands(w)
			}
			a := c.start()
			c.lands(a.park())
			c.now = c.now.Add(2 * lease)
			var w write = a.resolve(protocol.Released)
			c.lands(w)
			c.lands(a.next().acquire())
			c.lands(w)
			a = c.start()
			w = a.complete("old")
			c.lands(w)
			c.lands(a.replacement().acquire())
			c.lands(w)
			a = c.fresh()
			w = a.withdraw()
			c.lands(w)
			c.lands(a.next().acquire())
			c.lands(w)
		}},
		{"a claim or an extension that was claimed over since is no leave to run", func(c *cell) {
			a := c.start()
			b := a.next()
			c.lands(b.acquire())
			c.refused(a.acquire())
			c.refused(a.complete("late"))
			e := b.extend(2 * lease)
			c.lands(e)
			c.lands(b.next().acquire())
			c.refused(b.acquire())
			c.refused(e)
		}},
		two("another claim of the own owner is not this one", func(a *attempt) write { return a.extend(2 * lease) },
			func(a *attempt) write {
				again := *a
				again.claim.Record.Write = newID()
				return again.acquire()
			}),
		two("own release is not a completion", release, complete),
		two("own release is not a park", release, park),
		two("own completion is not a failure", complete, fail),
		two("own completion is not another completion", complete,
			func(a *attempt) write { return a.complete("second") }),
		two("own failure is not a completion", fail, complete),
		two("own completion is not an extension", complete,
			func(a *attempt) write { return a.extend(4 * lease) }),
		two("own park is not an uncertain release", park, func(a *attempt) write { return a.release(true) }),
		two("another call's completion is not mine", func(a *attempt) write {
			b := a.next()
			a.c.lands(b.acquire())
			return b.complete("theirs")
		}, complete),
		two("another call's park is not a third call's", func(a *attempt) write { return a.lapse() },
			func(a *attempt) write {
				s := a.lapse()
				s.Seen = a.claim.Record.Write
				return s
			}),
		{"a write does not land again after a later one", func(c *cell) {
			a := c.start()
			first := a.park()
			c.lands(first)
			c.lands(a.complete("late"))
			c.refused(first)
		}},
		{"a claim does not land again after its release", func(c *cell) {
			a := c.start()
			c.lands(a.release(false))
			c.refused(a.acquire())
		}},
		{"a takeover does not land again after its end", func(c *cell) {
			a := c.start()
			b := a.next()
			c.lands(b.acquire())
			c.lands(b.complete("done"))
			c.refused(b.acquire())
		}},
		{"a resolution does not land again after a new claim", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			r := a.resolve(protocol.Released)
			c.lands(r)
			c.lands(a.next().acquire())
			c.lands(r) // known to have landed, it changes nothing
			c.lands(a.next().acquire())
			c.refused(r) // not known any more
		}},
	}
	if steps {
		step := func(a *attempt) write { return a.step("charge", []byte("1")) }
		begin := func(a *attempt) write { return a.begin("charge") }
		cases = append(cases,
			two("own earlier step is not this one", step, step),
			two("own begin mark is not another begin mark", begin, begin),
			two("own step is not a begin mark", step, begin),
			check{"a step counts as landed after later writes", func(c *cell) {
				a := c.start()
				w := a.step("charge", []byte("1"))
				c.lands(w)
				c.lands(a.step("ship", []byte("2")))
				c.lands(w)
				c.lands(a.extend(3600e9))
				c.lands(w)
				c.lands(a.next().acquire())
				c.lands(w)
			}},
			check{"a resolution that recorded a step counts as landed after later claims", func(c *cell) {
				a := c.start()
				c.lands(a.begin("charge"))
				c.lands(a.lapse())
				w := a.resolve(protocol.Released)
				w.ClearSteps, w.Ending.ExpiresAt = nil, time.Time{}
				w.Steps = []protocol.StepWrite{{Name: "charge", Result: noise(100 << 10)}}
				c.lands(w)
				for range 2 {
					b := a.next()
					c.lands(b.acquire())
					c.lands(w)
					c.lands(b.release(true))
					c.lands(w)
				}
				b := a.next()
				c.lands(b.acquire())
				c.lands(b.complete("done"))
				c.refused(w) // not known any more
			}},
			check{"a begin mark is leave to run only under its claim", func(c *cell) {
				for _, end := range []func(*attempt) write{
					func(a *attempt) write { return a.next().acquire() },
					func(a *attempt) write { return a.lapse() },
					func(a *attempt) write { return a.release(true) },
				} {
					a := c.start()
					w := a.begin("charge")
					c.lands(w)
					c.lands(a.extend(3600e9))
					c.lands(w)
					c.lands(end(a))
					c.refused(w)
				}
			}})
	}
	return cases
}
