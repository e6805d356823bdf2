package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// move is a write of [protocol.Rotation].
type move struct{ protocol.Move }

func (w move) id() string     { return w.ID }
func (w move) String() string { return "a mark" }

func (w move) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}

func (w move) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.(protocol.Rotation).Move(ctx, now, w.Move)
}

// move is a mark in place of the attempt's record.
func (a *attempt) move() move {
	return move{protocol.Move{ID: a.id(), To: a.id() + "-moved", Write: newID(), ExpiresAt: expiry(a.c.now.Add(time.Hour))}}
}

// moveOver is a mark that replaces the record as it is.
func (a *attempt) moveOver() move {
	w := a.move()
	w.Seen = a.seen().Write
	return w
}

// movedCases: a mark stands where there is no record, and nothing else lands there.
func movedCases(h Harness) []check {
	if _, ok := h.Store.(protocol.Rotation); !ok {
		return []check{{"none", func(c *cell) {
			c.Skip("the store is no protocol.Rotation: operations with secrets are not tested, and fail closed")
		}}}
	}
	steps := !h.WithoutSteps
	marked := func(c *cell) *attempt {
		a := c.fresh()
		c.lands(a.move())
		return a
	}
	cases := []check{
		{"where there is no record, and again", func(c *cell) {
			a := c.fresh()
			w := a.move()
			c.lands(w)
			c.lands(w)
			c.lands(a.move())
			equal(c, "Write", w.Write, c.get(a.id()).Write)
			other := a.move()
			other.To += "-elsewhere"
			c.refused(other)
		}},
		{"not where there is a record", func(c *cell) {
			for _, s := range standing(steps) {
				c.refused(s.make(c).move())
			}
		}},
		{"over the record that was seen", func(c *cell) {
			a := c.start()
			c.lands(a.complete("done"))
			late, w := a.moveOver(), a.moveOver()
			c.lands(w)
			c.lands(w)
			c.lands(late)
			b := c.start()
			c.lands(b.complete("done"))
			late = b.moveOver()
			c.lands(b.replacement().acquire())
			c.refused(late)
			gone := c.start()
			c.lands(gone.complete("done"))
			late = gone.moveOver()
			c.delete(gone.id())
			c.refused(late)
		}},
		{"nothing lands on it", func(c *cell) {
			a := marked(c)
			ws := []write{
				a.acquire(), a.withdraw(), a.extend(2 * lease), a.complete("done"), a.fail(), a.release(true), a.park(), a.refer("pay_1"),
			}
			if steps {
				ws = append(ws, a.step("ship", []byte("1")), a.begin("ship"))
			}
			for _, w := range ws {
				c.refused(w)
			}
		}},
		{"what was sent before lands no more", func(c *cell) {
			var late []write
			a := c.start()
			late = append(late, a.extend(2*lease), a.complete("late"), a.park(), a.withdraw(), a.next().acquire(), a.lapse(), a.resolve(protocol.Completed))
			if steps {
				late = append(late, a.step("ship", []byte("1")), a.begin("ship"))
			}
			c.lands(a.complete("done"))
			late = append(late, a.replacement().acquire(), a.replacement().withdraw())
			if _, ok := c.store.(protocol.Questions); ok {
				late = append(late, a.prolong(time.Hour), a.forget())
			}
			c.lands(a.moveOver())
			for _, w := range late {
				c.refused(w)
			}
		}},
		{"a claim or a mark", func(c *cell) {
			for n := range rounds {
				a := c.fresh()
				ws := []write{a.move(), a.move(), a.move()}
				ws = slices.Insert(ws, n%(len(ws)+1), write(a.acquire()))
				errs := c.race(ws...)
				landed := c.get(a.id())
				for i, err := range errs {
					state := protocol.Moved
					if _, claims := ws[i].(acquire); claims {
						state = protocol.InProgress
					}
					if won := err == nil; won != (landed.State == state) {
						c.fatalf("%v got %v, and there is %s", ws[i], err, describe(landed))
					}
				}
			}
		}},
		{"a replacement or a mark", func(c *cell) {
			for n := range rounds {
				a := c.start()
				c.lands(a.complete("old"))
				ws := []write{a.replacement().acquire(), a.moveOver()}
				if n%2 == 1 {
					slices.Reverse(ws)
				}
				errs := c.race(ws...)
				if (errs[0] == nil) == (errs[1] == nil) {
					c.fatalf("%v got %v, and %v %v", ws[0], errs[0], ws[1], errs[1])
				}
			}
		}},
		{"the register", func(c *cell) {
			s := c.store.(protocol.Rotation)
			op := "op-" + newID()
			none, err := s.Register(c.ctx, op)
			c.must(err)
			if none != nil {
				c.fatalf("there is a register that nobody has written")
			}
			r := protocol.Register{Operation: op, Version: 1, Secrets: []protocol.RegisteredSecret{{Check: "plain", Since: c.now, Retired: true}, {Check: "a", Since: c.now}}}
			write := func(r protocol.Register, lands bool) {
				c.Helper()
				err := s.SetRegister(c.ctx, c.now, r)
				var conflict *protocol.ConflictError
				if lands {
					c.must(err)
				} else if !errors.As(err, &conflict) {
					c.fatalf("version %d is written over another one than the one before it: %v", r.Version, err)
				}
			}
			second := *r.Clone()
			second.Version, second.Secrets = 2, append(second.Secrets, protocol.RegisteredSecret{Check: "b", Since: c.now.Add(time.Hour)})
			write(second, false)
			write(r, true)
			write(r, false)
			write(second, true)
			write(second, false)
			write(r, false)
			got, err := s.Register(c.ctx, op)
			c.must(err)
			equal(c, "Operation", op, got.Operation)
			equal(c, "Version", 2, got.Version)
			equal(c, "secrets", 3, len(got.Secrets))
			for i, want := range second.Secrets {
				equal(c, "Check", want.Check, got.Secrets[i].Check)
				equal(c, "Since", want.Since.UTC(), got.Secrets[i].Since.UTC())
				equal(c, "Retired", want.Retired, got.Secrets[i].Retired)
			}
			other, err := s.Register(c.ctx, op+"-")
			c.must(err)
			if other != nil {
				c.fatalf("the register is that of another operation too")
			}
		}},
	}
	if h.Scanner != nil {
		cases = append(cases, check{"it is not listed", func(c *cell) {
			marked(c)
			a := c.start()
			c.lands(a.complete("done"))
			c.lands(a.moveOver())
			c.must(c.store.(protocol.Rotation).SetRegister(c.ctx, c.now, protocol.Register{
				Operation: "op-" + newID(), Version: 1, Secrets: []protocol.RegisteredSecret{{Check: "a", Since: c.now}},
			}))
			equal(c, "records", 0, len(c.scan(protocol.ScanQuery{Segments: 1})))
			c.start()
			equal(c, "records", 1, len(c.scan(protocol.ScanQuery{Segments: 1, Limit: 1})))
		}})
	}
	return cases
}
