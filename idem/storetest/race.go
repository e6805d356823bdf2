package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	rounds = 20
	racers = 8
)

// raceCases send writes at once of which one excludes the others.
func raceCases(steps bool) []check {
	// many makes the racers' writes on one record, in the state that prepare left.
	many := func(name string, prepare func(c *cell) *attempt, make func(a *attempt, i int) write) check {
		return check{name, func(c *cell) {
			for range rounds {
				a := prepare(c)
				ws := []write{}
				for i := range racers {
					ws = append(ws, make(a, i))
				}
				c.oneWins(ws...)
			}
		}}
	}
	started := func(c *cell) *attempt { return c.start() }
	parked := func(c *cell) *attempt {
		a := c.start()
		c.lands(a.park())
		return a
	}
	cases := []check{
		many("one of many claims wins", func(c *cell) *attempt { return c.fresh() },
			func(a *attempt, _ int) write {
				return a.c.fresh(func(r *protocol.Record) { r.ID = a.id() }).acquire()
			}),
		many("one of many takeovers wins", started,
			func(a *attempt, _ int) write { return a.next().acquire() }),
		many("one of many replacements wins", func(c *cell) *attempt {
			a := c.start()
			c.lands(a.complete("old"))
			return a
		}, func(a *attempt, _ int) write { return a.replacement().acquire() }),
		many("one of many calls' parks wins", started,
			func(a *attempt, _ int) write { return a.lapse() }),
		many("one of many resolutions wins", parked, func(a *attempt, i int) write {
			return a.resolve([]protocol.State{protocol.Completed, protocol.Failed, protocol.Released}[i%3])
		}),
		many("completion or takeover", started, func(a *attempt, i int) write {
			if i == 0 {
				return a.complete("in time")
			}
			return a.next().acquire()
		}),
		many("another call's park or takeover", started, func(a *attempt, i int) write {
			if i%2 == 0 {
				return a.lapse()
			}
			return a.next().acquire()
		}),
		many("extension or takeover", started, func(a *attempt, i int) write {
			if i == 0 {
				return a.extend(2 * lease)
			}
			return a.next().acquire()
		}),
		many("late outcome or resolution", parked, func(a *attempt, i int) write {
			if i == 0 {
				return a.complete("late")
			}
			return a.resolve(protocol.Released)
		}),
		many("withdrawal or takeover", started, func(a *attempt, i int) write {
			if i == 0 {
				return a.withdraw()
			}
			return a.next().acquire()
		}),
		{"a claim and its withdrawal", func(c *cell) {
			for range rounds {
				a := c.fresh()
				w := a.withdraw()
				errs := c.race(a.acquire(), w)
				c.must(errs[1])
				rec := c.get(a.id())
				equal(c, "State", protocol.Released, rec.State)
				equal(c, "Owner", w.Owner, rec.Owner)
			}
		}},
		{"every key has its own winner", func(c *cell) {
			ws := make([]write, 5*racers)
			for i := range ws {
				ws[i] = c.fresh().acquire()
			}
			for i, err := range c.race(ws...) {
				c.must(err)
				rec, err := ws[i].apply(nil, c.now)
				c.must(err)
				c.ref[rec.ID] = rec
				c.check(rec.ID)
			}
		}},
		{"extensions only raise the lease", func(c *cell) {
			for range rounds {
				a := c.start()
				ws := make([]write, racers)
				for i := range ws {
					ws[i] = a.extend(time.Duration(2+(i+3)%racers) * lease)
				}
				for _, err := range c.race(ws...) {
					c.must(err)
				}
				want := a.claim.Record.LeaseUntil.Add(racers * lease)
				got := c.get(a.id()).LeaseUntil
				if d := got.Sub(want).Abs(); d > time.Minute/2 {
					c.fatalf("LeaseUntil: want the latest, about %v, got %v", want, got)
				}
			}
		}},
		{"the same write sent many times at once", func(c *cell) {
			for _, l := range landings(steps) {
				w := l.make(c)
				ws := make([]write, racers)
				for i := range ws {
					ws[i] = w
				}
				for i, err := range c.race(ws...) {
					if err != nil {
						c.fatalf("%s, copy %d: %v", l.name, i, err)
					}
				}
				after, err := w.apply(c.ref[w.id()].Clone(), c.now)
				c.must(err)
				c.ref[w.id()] = after.Clone()
				c.check(w.id())
			}
		}},
	}
	if steps {
		cases = append(cases, many("one of many begin marks wins", started,
			func(a *attempt, _ int) write { return a.begin("charge") }),
			many("a step or a takeover", started, func(a *attempt, i int) write {
				if i == 0 {
					return a.step("charge", []byte("1"))
				}
				return a.next().acquire()
			}))
	}
	return cases
}
