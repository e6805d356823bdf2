package storetest

import (
	"errors"

	"github.com/idem-go/idempotency/idem/protocol"
)

// unreadableCases: what cannot be read is never taken for absent, nor for a
// conflict with a record that a caller could act on.
func unreadableCases(h Harness) []check {
	if len(h.Damages) == 0 {
		return []check{{"damages", func(c *cell) { c.Skip("the harness has no Damages: failing closed is not tested") }}}
	}
	var cases []check
	for i, d := range h.Damages {
		if d.Parts {
			cases = append(cases, check{d.Name, func(c *cell) { damagedParts(c, c.h.Damages[i]) }})
			continue
		}
		for _, s := range standing(false)[:3] {
			cases = append(cases, check{d.Name + " of a record " + s.name, func(c *cell) {
				damagedRecord(c, s.make(c), c.h.Damages[i], !h.WithoutSteps)
			}})
		}
	}
	return cases
}

func damagedRecord(c *cell, a *attempt, d Damage, steps bool) {
	untouched := c.start()
	// Nothing that is sent here would land on the healthy record either.
	stale, other := a.next(), a.unseen()
	stale.claim.Seen = newID()
	lapse, resolve := a.lapse(), a.resolve(protocol.Completed)
	lapse.Seen, resolve.Seen = newID(), newID()
	ws := []write{stale.acquire(), lapse, resolve}
	moves := []move{acquires, withdraws, extends, completes, fails, releases, parks}
	if steps {
		moves = append(moves, ships, begins)
	}
	for _, m := range moves {
		ws = append(ws, m(other))
	}
	c.must(d.Do(c.ctx, a.id()))
	rec, err := c.store.Get(c.ctx, a.id())
	unreadable(c, "Get", err)
	if rec != nil {
		c.fatalf("Get of a damaged record returns %+v together with its error", rec)
	}
	for _, w := range ws {
		unreadable(c, w.String(), c.send(w))
	}
	_, err = c.store.Get(c.ctx, a.id())
	unreadable(c, "Get, at last", err)
	c.check(untouched.id())
}

func damagedParts(c *cell, d Damage) {
	a, untouched := having(completesInParts)(c), having(completesInParts)(c)
	before := c.get(a.id())
	c.must(d.Do(c.ctx, a.id()))
	for name, rec := range map[string]*protocol.Record{
		"read before": before, "read after": c.get(a.id()), "of a conflict": c.conflicting(a.unseen().acquire()),
	} {
		equal(c, "State", protocol.Completed, rec.State)
		got, err := c.store.Result(c.ctx, rec)
		unreadable(c, "Result of the record "+name, err)
		if got != nil {
			c.fatalf("Result returns %d bytes together with its error", len(got))
		}
	}
	c.check(untouched.id())
}

func unreadable(c *cell, what string, err error) {
	c.Helper()
	if !errors.Is(err, protocol.ErrRecordUnreadable) {
		c.fatalf("%s: want ErrRecordUnreadable, got %v", what, err)
	}
	if errors.Is(err, protocol.ErrStoreUnavailable) {
		c.fatalf("%s: what is damaged is not a store that is down, got %v", what, err)
	}
}
