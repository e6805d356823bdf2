package storetest

import (
	"errors"
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

// acceptCases: what is accepted for later, and what becomes of it.
func acceptCases(h Harness) []check {
	if h.WithoutSteps {
		return []check{{"is refused as unsupported", func(c *cell) {
			a := c.fresh()
			if err := a.accept("input").send(c.ctx, c.store, c.now); !errors.Is(err, errors.ErrUnsupported) {
				c.fatalf("Finish as pending: want errors.ErrUnsupported, got %v", err)
			}
			c.check(a.id())
		}}}
	}
	input := func(c *cell, a *attempt, want int) {
		c.Helper()
		b, err := c.store.StepResult(c.ctx, c.get(a.id()), protocol.AcceptedStep)
		c.must(err)
		equal(c, "length of the input", want, len(b))
	}
	ends := []func(*attempt) finish{
		func(a *attempt) finish { return a.complete("done") },
		func(a *attempt) finish { return a.complete(string(noise(450 << 10))) },
		func(a *attempt) finish { return a.fail() },
	}
	return []check{
		{"creates the record with an input of any size", func(c *cell) {
			for _, size := range []int{0, 10, 1 << 10, 1<<10 + 1, 100 << 10, 450 << 10} {
				a := c.fresh()
				w := a.accept(string(noise(size)))
				c.lands(w)
				c.lands(w) // once more, as after a lost reply
				input(c, a, size)
				c.refused(a.unseen().acquire())
				c.refused(a.unseen().accept("another one"))
			}
		}},
		{"is refused by every record that was not seen", func(c *cell) {
			for _, s := range standing(true) {
				a := s.make(c)
				c.refused(a.unseen().accept("input"))
			}
		}},
		{"replaces what it has seen", func(c *cell) {
			for _, s := range standing(true) {
				a := s.make(c)
				b := a.over()
				w := b.accept("input")
				c.lands(w)
				c.lands(w)
				input(c, b, 5)
			}
		}},
		{"only one of many lands", func(c *cell) {
			a := c.fresh()
			ws := make([]write, 8)
			for i := range ws {
				ws[i] = a.unseen().accept(string(noise(2 << 10)))
			}
			c.oneWins(ws...)
			input(c, a, 2<<10)
		}},
		{"or a claim", func(c *cell) {
			a := c.fresh()
			c.oneWins(a.acquire(), a.unseen().accept("input"))
		}},
		{"an input over the limit is refused and nothing written", func(c *cell) {
			if h.MaxResult == 0 {
				c.Skip("the harness has no MaxResult")
			}
			a := c.fresh()
			var large *protocol.TooLargeError
			if err := a.accept(string(noise(h.MaxResult+1))).send(c.ctx, c.store, c.now); !errors.As(err, &large) {
				c.fatalf("want a TooLargeError, got %v", err)
			}
			c.check(a.id())
		}},
		{"is claimed, and its input goes with the outcome", func(c *cell) {
			for _, end := range ends {
				a := c.accepted(string(noise(100 << 10)))
				ticket := c.get(a.id()).Ticket
				b := a.worked()
				input(c, a, 100<<10)
				w := end(b)
				w.LargeSteps, w.Watched = true, true
				c.lands(w)
				equal(c, "Ticket", ticket, c.get(a.id()).Ticket)
				equal(c, "number of steps", 0, len(c.get(a.id()).Steps))
			}
		}},
		{"one of many workers claims it", func(c *cell) {
			a := c.accepted("input")
			ws := make([]write, 8)
			for i := range ws {
				ws[i] = a.next().acquire()
			}
			c.oneWins(ws...)
		}},
		{"keeps its input until there is an outcome", func(c *cell) {
			for _, leave := range []func(*attempt) write{
				func(a *attempt) write { return a.release(false) },
				func(a *attempt) write { return a.release(true) },
				func(a *attempt) write { return a.withdraw() },
				func(a *attempt) write { return a.step("ship", []byte("s_1")) },
			} {
				a := c.accepted("input")
				ticket := c.get(a.id()).Ticket
				b := a.worked()
				c.lands(leave(b))
				input(c, a, 5)
				b.worked()
				input(c, a, 5)
				equal(c, "Ticket", ticket, c.get(a.id()).Ticket)
			}
		}},
		{"taken back before it landed", func(c *cell) {
			a := c.accepted("input")
			b := a.next()
			c.lands(b.withdraw())
			c.refused(b.acquire())
			input(c, a, 5)
		}},
		{"resolved while nobody runs it", func(c *cell) {
			for _, to := range []protocol.State{protocol.Completed, protocol.Failed} {
				a := c.accepted(string(noise(100 << 10)))
				w := a.resolve(to)
				c.lands(w)
				c.lands(w)
				c.refused(a.unseen().accept("input"))
				b := c.accepted("input")
				c.lands(b.worked().release(true))
				c.lands(b.resolve(to))
			}
			a := c.accepted("input")
			c.refused(a.resolve(protocol.Released)) // it waits already
		}},
		{"a resolution or a worker", func(c *cell) {
			a := c.accepted("input")
			c.oneWins(a.resolve(protocol.Failed), a.next().acquire())
			// A resolution of what was seen before the worker came is too late.
			b := c.accepted("input")
			late := b.resolve(protocol.Failed)
			b.worked()
			c.refused(late)
		}},
		{"a released record that was not accepted is not resolved", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", nil))
			c.lands(a.release(true))
			c.refused(a.resolve(protocol.Failed))
		}},
		{"parked, then released by a resolution", func(c *cell) {
			a := c.accepted("input")
			b := a.worked()
			c.lands(b.lapse())
			c.now = c.now.Add(2 * lease)
			c.lands(a.resolve(protocol.Released))
			input(c, a, 5)
			a.worked()
		}},
		{"with writes that commit with it", func(c *cell) {
			if h.Unit == nil {
				c.Skip("the harness has no Unit")
			}
			a := c.fresh()
			for _, lands := range []bool{true, false} {
				value, applied, err := h.Unit(c.ctx)
				c.must(err)
				w := a.unseen().accept(string(noise(100 << 10)))
				w.Unit = value
				if lands {
					c.lands(w)
				} else {
					c.refused(w)
				}
				ok, err := applied(c.ctx)
				c.must(err)
				equal(c, "applied", lands, ok)
			}
		}},
	}
}
