package storetest

import (
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// standing are the ways in which a record can stand in a claim's way.
func standing(steps bool) []struct {
	name string
	make func(c *cell) *attempt
} {
	type way = struct {
		name string
		make func(c *cell) *attempt
	}
	after := func(name string, f func(a *attempt) write) way {
		return way{name, func(c *cell) *attempt {
			a := c.start()
			c.lands(f(a))
			return a
		}}
	}
	ways := []way{
		{"in_progress", func(c *cell) *attempt { return c.start() }},
		{"in_progress, not repeatable", func(c *cell) *attempt { return c.start(notRepeatable) }},
		after("completed", func(a *attempt) write { return a.complete(`{"id":"pay_1"}`) }),
		after("completed without a result", func(a *attempt) write { return a.complete("") }),
		after("failed", func(a *attempt) write { return a.fail() }),
		after("released", func(a *attempt) write { return a.release(false) }),
		after("released, uncertain", func(a *attempt) write { return a.release(true) }),
		after("unknown", func(a *attempt) write { return a.park() }),
		after("parked by another call", func(a *attempt) write { return a.lapse() }),
		after("withdrawn", func(a *attempt) write { return a.withdraw() }),
	}
	if steps {
		ways = append(ways,
			after("in_progress with a step", func(a *attempt) write { return a.step("ship", []byte(`"s_1"`)) }),
			after("in_progress in an open step", func(a *attempt) write { return a.begin("ship") }))
	}
	return ways
}

func claimCases(steps bool) []check {
	cases := []check{
		{"creates the record as given", func(c *cell) {
			a := c.start()
			rec := c.get(a.id())
			equal(c, "Owner", a.claim.Record.Owner, rec.Owner)
			equal(c, "Attempt", 1, rec.Attempt)
			equal(c, "State", protocol.InProgress, rec.State)
		}},
		{"creates a not repeatable record", func(c *cell) { c.start(notRepeatable) }},
		{"of another key is not touched", func(c *cell) {
			a := c.start()
			b := c.start()
			c.lands(b.complete("b"))
			c.check(a.id())
		}},
	}
	for _, s := range standing(steps) {
		cases = append(cases, check{"finds a record " + s.name, func(c *cell) {
			a := s.make(c)
			other := c.fresh(func(r *protocol.Record) { r.ID = a.id() })
			c.refused(other.acquire())
			c.refused(other.acquire())
		}}, check{"takes over a record " + s.name, func(c *cell) {
			a := s.make(c)
			b := a.next()
			c.lands(b.acquire())
			rec := c.get(a.id())
			equal(c, "Owner", b.claim.Record.Owner, rec.Owner)
			equal(c, "CreatedAt", a.claim.Record.CreatedAt, rec.CreatedAt.UTC())
		}}, check{"replaces a record " + s.name, func(c *cell) {
			a := s.make(c)
			b := a.replacement()
			c.lands(b.acquire())
			rec := c.get(a.id())
			equal(c, "Fingerprint", b.claim.Record.Fingerprint, rec.Fingerprint)
			equal(c, "number of steps", 0, len(rec.Steps))
			equal(c, "length of the result", 0, rec.Body.Size)
			if rec.Failure != nil || rec.Ref != "" || rec.Value != "" {
				c.fatalf("a replaced record keeps nothing, got %+v", rec)
			}
		}})
	}
	cases = append(cases, staleClaimCases(steps)...)
	if steps {
		cases = append(cases, check{"takeover keeps identity and steps and nothing else", func(c *cell) {
			a := c.start()
			c.lands(a.step("reserve", []byte(`{"seat":7}`)))
			c.lands(a.step("charge", nil))
			c.lands(a.lapse())
			c.lands(a.resolve(protocol.Released))
			b := a.next()
			c.lands(b.acquire())
			rec := c.get(a.id())
			equal(c, "seat", `{"seat":7}`, c.stepResult(rec, "reserve"))
			equal(c, "number of steps", 2, len(rec.Steps))
			equal(c, "Value", "value", rec.Value)
			equal(c, "Codec", "codec", rec.Codec)
			equal(c, "Fingerprint", a.claim.Record.Fingerprint, rec.Fingerprint)
			equal(c, "Ref", "", rec.Ref)
			equal(c, "ExpiresAt is zero", true, rec.ExpiresAt.IsZero())
		}})
	}
	return cases
}

// staleClaimCases: what a claim has seen must still be so when it lands.
func staleClaimCases(steps bool) []check {
	changes := []struct {
		name string
		make func(a *attempt) write
	}{
		{"an extension", func(a *attempt) write { return a.extend(2 * lease) }},
		{"another call's takeover", func(a *attempt) write { return a.next().acquire() }},
		{"another call's replacement", func(a *attempt) write { return a.replacement().acquire() }},
		{"another call's park", func(a *attempt) write { return a.lapse() }},
		{"a completion", func(a *attempt) write { return a.complete("late") }},
		{"a release", func(a *attempt) write { return a.release(false) }},
	}
	if steps {
		changes = append(changes, struct {
			name string
			make func(a *attempt) write
		}{"a step", func(a *attempt) write { return a.step("ship", nil) }})
	}
	var cases []check
	for _, ch := range changes {
		cases = append(cases, check{"takeover fails after " + ch.name, func(c *cell) {
			a := c.start()
			other := a.next()
			c.lands(ch.make(a))
			c.refused(other.acquire())
		}}, check{"replacement fails after " + ch.name, func(c *cell) {
			a := c.start()
			other := a.replacement()
			c.lands(ch.make(a))
			c.refused(other.acquire())
		}})
	}
	for _, replace := range []bool{false, true} {
		cases = append(cases, check{fmt.Sprintf("on a deleted record reserves anew, replace %v", replace), func(c *cell) {
			a := c.start()
			other := a.next()
			if replace {
				other = a.replacement()
			}
			c.delete(a.id())
			c.refused(other.acquire())
			other.claim.Seen, other.claim.Replace, other.claim.Record.Write = "", false, newID()
			other.claim.Record.CreatedAt = c.now.Add(time.Second)
			c.lands(other.acquire())
		}})
	}
	return cases
}
