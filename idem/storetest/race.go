package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	rounds = 5
	racers = 8
)

// raceCases send writes at once that exclude each other.
func raceCases(steps bool) []check {
	// race sends writes on one record at once. The first one may be another one than the rest.
	race := func(name string, from func(c *cell) *attempt, moves ...move) check {
		return check{name, func(c *cell) {
			for range rounds {
				a := from(c)
				c.oneWins(many(racers, func(i int) write { return moves[min(i, len(moves)-1)](a) })...)
			}
		}}
	}
	anotherClaim := func(a *attempt) write { return a.unseen().acquire() }
	cases := []check{
		race("one of many claims wins", unclaimed, anotherClaim),
		race("one of many takeovers wins", having(), takesOver),
		race("one of many replacements wins", having(completes), replaces),
		race("one of many calls' parks wins", having(), lapses),
		race("one of many resolutions wins", having(parks),
			resolves(protocol.Completed), resolves(protocol.Failed), resolves(protocol.Released)),
		race("completion or takeover", having(), completes, takesOver),
		race("another call's park or takeover", having(), lapses, lapses, lapses, lapses, takesOver),
		race("extension or takeover", having(), extends, takesOver),
		race("late outcome or resolution", having(parks), completes, resolves(protocol.Released)),
		race("withdrawal or takeover", having(), withdraws, takesOver),
		{"a claim and its withdrawal", func(c *cell) {
			for range rounds {
				a := c.fresh()
				w := a.withdraw()
				c.must(c.race(a.acquire(), w)[1])
				equal(c, "Owner", w.Owner, c.get(a.id()).Owner)
			}
		}},
		{"every key has its own winner", func(c *cell) {
			ws := many(5*racers, func(int) write { return c.fresh().acquire() })
			for i, err := range c.race(ws...) {
				c.must(err)
				c.landed(ws[i])
			}
		}},
		{"extensions only raise the lease", func(c *cell) {
			for range rounds {
				a := c.start()
				ws := many(racers, func(i int) write { return a.extend(time.Duration(2+(i+3)%racers) * lease) })
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
				for i, err := range c.race(many(racers, func(int) write { return w })...) {
					if err != nil {
						c.fatalf("%s, copy %d: %v", l.name, i, err)
					}
				}
				c.landed(w)
			}
		}},
	}
	large := recordsOfStep(protocol.StepWrite{Name: "charge", Result: noise(5 << 10)})
	return append(cases, withSteps(steps, race("one of many begin marks wins", having(), begins),
		race("one of many resolutions of a step wins", having(begins, lapses), large),
		race("a step or a takeover", having(), charges, takesOver))...)
}
