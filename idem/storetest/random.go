package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	sequences = 30
	length    = 40
)

// randomCases send seeded sequences of writes on one key, some late, some again,
// and compare each step with the reference.
func randomCases(steps bool) []check {
	var cases []check
	for seed := range uint64(sequences) {
		cases = append(cases, check{fmt.Sprintf("sequence %d", seed), func(c *cell) {
			r := rand.New(rand.NewPCG(seed, 1))
			attempts := []*attempt{c.start()}
			var kept []write
			for range length {
				a := attempts[r.IntN(len(attempts))]
				if r.IntN(3) > 0 {
					a = attempts[len(attempts)-1]
				}
				switch n := r.IntN(10); {
				case n < 2 && len(kept) > 0:
					c.do(kept[r.IntN(len(kept))])
					continue
				case n == 2 && r.IntN(8) == 0:
					c.delete(a.id())
					continue
				}
				w := a.any(r, steps)
				kept = append(kept, w)
				if r.IntN(6) > 0 && c.do(w) == nil {
					if claim, ok := w.(acquire); ok {
						attempts = append(attempts, &attempt{c, claim.Claim})
					}
				}
			}
		}})
	}
	return cases
}

// any makes a write that the attempt, another call or an operator could send now.
func (a *attempt) any(r *rand.Rand, steps bool) write {
	if a.seen() == nil {
		return a.c.fresh(func(rec *protocol.Record) { rec.ID = a.id() }).acquire()
	}
	ws := append(ownWrites(steps), ownWrites(steps)[0])
	_, admin := a.c.store.(protocol.AdminStore)
	switch n := r.IntN(len(ws) + 8); n {
	case 0:
		return a.extend(time.Duration(r.IntN(20)) * lease / 4)
	case len(ws):
		return a.next().acquire()
	case len(ws) + 1:
		return a.replacement().acquire()
	case len(ws) + 2:
		return a.lapse()
	case len(ws) + 3:
		return a.resolve([]protocol.State{protocol.Completed, protocol.Failed, protocol.Released}[r.IntN(3)])
	case len(ws) + 4:
		return a.next().withdraw()
	case len(ws) + 7:
		if steps {
			return a.over().accept("input")
		}
		return a.next().acquire()
	case len(ws) + 6:
		if admin {
			return a.prolong(time.Duration(r.IntN(100)-50) * time.Hour)
		}
		return a.next().acquire()
	case len(ws) + 5:
		if steps {
			return a.step("late", []byte("again"))
		}
		return a.next().acquire()
	default:
		w := ws[n].make(a)
		if _, ok := w.(withdraw); ok && len(a.seen().Steps) > 0 {
			// A claim is withdrawn before its handler runs, so before any step.
			return a.lapse()
		}
		return w
	}
}
