package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// acceptedFor is how long accepted work may wait for its worker.
const acceptedFor = time.Hour

// accept is the acceptance for later of what the attempt would run.
func (a *attempt) accept(input string) finish {
	f := a.atomic(a.finish(protocol.Ending{State: protocol.Pending, Due: a.c.now.Add(acceptedFor)}))
	claim := a.claim
	rec := claim.Record.Clone()
	rec.Ticket, rec.Attempt, rec.LeaseUntil, rec.ExpiresAt = newID(), rec.Attempt-1, time.Time{}, time.Time{}
	rec.Steps = map[string]protocol.RecordedStep{protocol.AcceptedStep: {
		Write: newID(), Body: protocol.Body{Data: []byte(input), Size: len(input), Stored: len(input)},
	}}
	claim.Record = *rec
	f.Attempt = protocol.Atomic{Claim: claim}
	return f
}

// accepts is the move that accepts for later, with an input that a store may keep in parts.
func accepts(a *attempt) write { return a.accept(string(noise(5 << 10))) }

// acceptsLittle is the same with an input that fits into the record.
func acceptsLittle(a *attempt) write { return a.accept("input") }

// accepted is a record that waits for a worker.
func (c *cell) accepted(input string) *attempt {
	c.Helper()
	a := c.fresh()
	c.lands(a.accept(input))
	return a
}

// worked is the worker's attempt, which has its claim.
func (a *attempt) worked() *attempt {
	a.c.Helper()
	b := a.next()
	b.claim.Record.Due = b.claim.Record.LeaseUntil.Add(2 * time.Second)
	a.c.lands(b.acquire())
	return b
}

// acceptCases: what is accepted for later, and what becomes of it. That it lands as outcomes without
// a claim do is in commitCases.
func acceptCases(h Harness) []check {
	if h.WithoutSteps {
		return []check{{"is refused as unsupported", func(c *cell) { c.unsupported(c.fresh().accept("input")) }}}
	}
	return []check{
		{"creates the record with an input of any size", func(c *cell) {
			for _, size := range []int{0, 10, 1 << 10, 1<<10 + 1, 100 << 10, 300 << 10} {
				a := c.fresh().again(func(a *attempt) write { return a.accept(string(noise(size))) })
				a.unseen().refused(acquires, accepts)
			}
		}},
		{"an input over the limit is refused and nothing written", func(c *cell) {
			if h.MaxResult == 0 {
				c.Skip("the harness has no MaxResult")
			}
			c.tooLarge(c.fresh().accept(string(noise(h.MaxResult + 1))))
		}},
		{"is claimed, and its input goes with the outcome", func(c *cell) {
			for _, end := range []func(*attempt) finish{ended("done"), ended(string(noise(300 << 10))), (*attempt).fail} {
				w := end(c.accepted(string(noise(5 << 10))).worked())
				w.Watched = true
				c.lands(w)
			}
		}},
		{"one of many workers claims it", func(c *cell) { c.oneOf(c.accepted("input"), takesOver) }},
		{"keeps its input until there is an outcome", func(c *cell) {
			for _, leave := range []move{releases, releasesInDoubt, withdraws, ships} {
				c.accepted("input").worked().lands(leave).worked()
			}
			a := c.fresh().again(accepts)
			a.worked().lands(releases).worked().lands(releases)
			a.late(false) // not known any more
		}},
		{"taken back before it landed", func(c *cell) { c.accepted("input").next().lands(withdraws).refused(acquires) }},
		{"a replacement of it is taken back", func(c *cell) { c.accepted("input").replacement().lands(withdraws) }},
		{"resolved while no attempt runs it", func(c *cell) {
			for _, to := range []protocol.State{protocol.Completed, protocol.Failed} {
				c.accepted(string(noise(5 << 10))).again(resolves(to)).unseen().refused(accepts)
				c.accepted("input").worked().lands(releasesInDoubt, resolves(to))
			}
			c.accepted("input").refused(resolves(protocol.Released)) // it waits already
		}},
		{"a resolution or a worker", func(c *cell) {
			a := c.accepted("input")
			c.oneWins(a.resolve(protocol.Failed), a.next().acquire())
			// A resolution of what was seen before the worker came is too late.
			b := c.accepted("input").holds(resolves(protocol.Failed))
			b.worked()
			b.late(false)
		}},
		{"a released record that was not accepted is not resolved", func(c *cell) {
			having(ships, releasesInDoubt)(c).refused(resolves(protocol.Failed))
		}},
		{"parked, then released by a resolution", func(c *cell) {
			c.accepted("input").worked().lands(lapses).after(2 * lease).lands(resolves(protocol.Released)).worked()
		}},
	}
}
