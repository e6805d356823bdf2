package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
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
			c.start().lands(omits(`{"status":201}`), replaces)
		}},
		{"omitted with nothing kept", func(c *cell) {
			w := c.start().without("")
			w.Ending.Result = nil
			c.lands(w)
		}},
		{"a large result of a lost claim is never read", func(c *cell) {
			for _, end := range []move{otherLarge, completes} {
				a := c.start()
				b := a.next().lands(acquires)
				a.refused(completesInParts)
				b.lands(end)
				a.refused(completesInParts)
			}
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
		r := having(parks)(c).resolve(protocol.Completed)
		r.Ending.Result = noise(h.MaxResult + 1)
		c.tooLarge(r)
	}})
}

// upgradeCases: a result that is added to an outcome that was recorded without it.
func upgradeCases(h Harness) []check {
	large := string(noise(300 << 10))
	// recorded is an attempt whose outcome was recorded without its result.
	recorded := func(c *cell, kept string) *attempt { return c.start().holds(omits(kept)).late(true) }
	return []check{
		{"is added to the outcome that was recorded without it", func(c *cell) {
			for _, result := range []string{"", "outcome", large} {
				for _, kept := range []string{"", `{"status":201}`} {
					recorded(c, kept).again(adds(result)).unseen().refused(acquires)
				}
			}
		}},
		{"leaves the expiry and the times as they are", func(c *cell) {
			w := recorded(c, "kept").add(large)
			w.Ending.ExpiresAt = w.Ending.ExpiresAt.Add(time.Hour)
			c.lands(w)
		}},
		{"is refused where that outcome is not", func(c *cell) {
			c.fresh().holds(omits("kept")).refused(adds("outcome"))
			for _, s := range standing(!h.WithoutSteps) {
				s.make(c).holds(omits("kept")).refused(adds(large))
			}
		}},
		{"is refused to another owner", func(c *cell) {
			w := recorded(c, "kept").add(large)
			w.Owner = newID()
			c.refused(w)
		}},
		{"is refused by an outcome that has its result", func(c *cell) {
			c.start().holds(completes).late(true).refused(adds(large))
		}},
		{"is added once", func(c *cell) {
			recorded(c, "kept").lands(adds(large)).refused(adds("another"))
		}},
		{"of a replaced outcome is refused", func(c *cell) {
			a := recorded(c, "kept").after(expired)
			b := a.replacement().lands(acquires)
			a.refused(adds(large))
			b.holds(omits("theirs")).late(true)
			a.refused(adds(large))
			b.lands(adds("outcome"))
		}},
		{"of a deleted outcome brings nothing back", func(c *cell) {
			recorded(c, "kept").deleted().refused(adds(large))
		}},
		{"does not complete an attempt that runs or is parked", func(c *cell) {
			a := c.start().holds(omits("kept")).refused(adds("outcome")).lands(parks).refused(adds("outcome"))
			a.late(true).lands(adds("outcome"))
		}},
	}
}
