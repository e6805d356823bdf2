package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"
)

// sizes of results, in bytes: around the limits at which a store may compress,
// split, or run into its item's size, and what Lambda can return at most.
var sizes = []struct {
	name  string
	bytes int
}{
	{"0 B", 0}, {"1 B", 1}, {"1 KB", 1 << 10}, {"2 KB", 2 << 10}, {"4 KB", 4 << 10}, {"4 KB and one", 4<<10 + 1},
	{"256 KB", 256 << 10}, {"256 KB and one", 256<<10 + 1}, {"390 KB", 390 << 10}, {"450 KB", 450 << 10},
	{"5.5 MB", 5632 << 10},
}

// noise does not compress, and is the same for the same size.
func noise(size int) []byte {
	b := make([]byte, size)
	seed := [32]byte{byte(size), byte(size >> 8), byte(size >> 16)}
	rand.NewChaCha8(seed).Read(b)
	return b
}

// text compresses well.
func text(size int) []byte {
	return bytes.Repeat([]byte(`{"id":"pay_1","amount":1200,"currency":"CHF"},`), size/46+1)[:size]
}

func resultCases(h Harness) []check {
	var cases []check
	for _, s := range sizes {
		if h.MaxResult > 0 && s.bytes > h.MaxResult {
			continue
		}
		for kind, body := range map[string]func(int) []byte{"noise": noise, "text": text} {
			cases = append(cases, check{fmt.Sprintf("%s of %s", s.name, kind), func(c *cell) {
				a := c.start().holds(func(a *attempt) write { return a.complete(string(body(s.bytes))) }).late(true)
				if s.bytes < 1<<20 {
					a.late(true)
				}
				a.unseen().refused(acquires)
			}})
		}
	}
	otherLarge := func(a *attempt) write { return a.complete(string(noise(280 << 10))) }
	cases = append(cases, []check{
		{"what was kept of an omitted result", func(c *cell) {
			a := c.start()
			c.lands(a.without(`{"status":201}`))
			a.lands(replaces)
		}},
		{"omitted with nothing kept", func(c *cell) {
			w := c.start().without("")
			w.Ending.Result = nil
			c.lands(w)
		}},
		{"a large result of a lost claim is never read", func(c *cell) {
			a := c.start()
			b := a.next().lands(acquires)
			a.refused(completesInParts)
			b.lands(otherLarge)
			a.refused(completesInParts)
		}},
		{"a small result after a lost claim's large one", func(c *cell) {
			a := c.start()
			b := a.next().lands(acquires)
			a.refused(completesInParts)
			b.lands(completes)
		}},
		{"a large result replaces an expired one", func(c *cell) {
			a := having(completesInParts)(c)
			a.replacement().lands(acquires, otherLarge)
			a.replacement().lands(acquires, completes)
		}},
		// An owner has one large result; a store may name the parts by owner.
		{"a second, small completion of the same owner", func(c *cell) { having(completesInParts)(c).refused(completes) }},
		{"a large result of one record is not another's", func(c *cell) {
			a, b := having(completesInParts)(c), having(otherLarge)(c)
			c.check(a.id())
			c.check(b.id())
		}},
	}...)
	if h.MaxResult == 0 {
		return cases
	}
	return append(cases, check{"a result over the limit is refused and nothing written", func(c *cell) {
		a := c.start()
		c.tooLarge(a.complete(string(noise(h.MaxResult + 1))))
		c.lands(a.without("kept"))
		c.lands(c.start().complete(string(noise(h.MaxResult))))
		if !h.WithoutSteps {
			d := c.start()
			c.tooLarge(d.step("ship", noise(h.MaxResult+1)))
			c.lands(d.stepOmitted("ship"))
		}
	}})
}

// upgradeCases: a result that is added to an outcome that was recorded without it.
func upgradeCases(h Harness) []check {
	large := string(noise(300 << 10))
	// recorded is an attempt whose outcome was recorded without its result.
	recorded := func(c *cell, kept string) (*attempt, finish) {
		a := c.start()
		fact := a.without(kept)
		c.lands(fact)
		return a, fact
	}
	return []check{
		{"is added to the outcome that was recorded without it", func(c *cell) {
			for _, result := range []string{"", "outcome", large} {
				for _, kept := range []string{"", `{"status":201}`} {
					a, fact := recorded(c, kept)
					a.again(func(a *attempt) write { return a.add(fact, result) }).unseen().refused(acquires)
				}
			}
		}},
		{"leaves the expiry and the times as they are", func(c *cell) {
			a, fact := recorded(c, "kept")
			w := a.add(fact, large)
			w.Ending.ExpiresAt = w.Ending.ExpiresAt.Add(time.Hour)
			c.lands(w)
		}},
		{"is refused where that outcome is not", func(c *cell) {
			a := c.fresh()
			c.refused(a.add(a.without("kept"), "outcome"))
			for _, s := range standing(!h.WithoutSteps) {
				a := s.make(c)
				c.refused(a.add(a.without("kept"), large))
			}
		}},
		{"is refused to another owner", func(c *cell) {
			a, fact := recorded(c, "kept")
			w := a.add(fact, large)
			w.Owner = newID()
			c.refused(w)
		}},
		{"is refused by an outcome that has its result", func(c *cell) {
			a := c.start()
			whole := a.complete("outcome")
			c.lands(whole)
			c.refused(a.add(whole, large))
		}},
		{"is added once", func(c *cell) {
			a, fact := recorded(c, "kept")
			c.lands(a.add(fact, large))
			c.refused(a.add(fact, "another"))
		}},
		{"of a replaced outcome is refused", func(c *cell) {
			a, fact := recorded(c, "kept")
			c.now = c.now.Add(retention + time.Hour)
			b := a.replacement().lands(acquires)
			c.refused(a.add(fact, large))
			theirs := b.without("theirs")
			c.lands(theirs)
			c.refused(a.add(fact, large))
			c.lands(b.add(theirs, "outcome"))
		}},
		{"of a deleted outcome brings nothing back", func(c *cell) {
			a, fact := recorded(c, "kept")
			c.delete(a.id())
			c.refused(a.add(fact, large))
		}},
		{"does not complete an attempt that runs or is parked", func(c *cell) {
			a := c.start()
			fact := a.without("kept")
			c.refused(a.add(fact, "outcome"))
			a.lands(parks)
			c.refused(a.add(fact, "outcome"))
			c.lands(fact)
			c.lands(a.add(fact, "outcome"))
		}},
	}
}
