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
						attempts = append(attempts, &attempt{c: c, claim: claim.Claim})
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
		return a.unseen().acquire()
	}
	moves := []func(*attempt, *rand.Rand) write{
		(*attempt).anyEnd, (*attempt).anyEnd, (*attempt).anyEnd,
		(*attempt).anyClaim, (*attempt).anyClaim, (*attempt).anySettlement,
		func(a *attempt, r *rand.Rand) write { return a.extend(time.Duration(r.IntN(20)) * lease / 4) },
		func(a *attempt, r *rand.Rand) write { return a.refer("pay_" + string(rune('a'+r.IntN(9)))) },
	}
	if steps {
		moves = append(moves, (*attempt).anyStep, (*attempt).anyStep, (*attempt).anyStep,
			func(a *attempt, _ *rand.Rand) write { return a.over().accept("input") })
	}
	if _, admin := a.c.store.(protocol.AdminStore); admin {
		moves = append(moves, (*attempt).anyChange)
	}
	return moves[r.IntN(len(moves))](a, r)
}

// anyEnd ends the attempt, in doubt or under a new owner now and then.
func (a *attempt) anyEnd(r *rand.Rand) write {
	results := []string{"", "mine", string(text(3000)), string(noise(3000)), string(text(30_000)), string(noise(5000))}
	ends := []finish{
		a.complete(results[r.IntN(len(results))]), a.complete("mine"), a.without("kept"), a.fail(),
		a.release(false), a.release(true), a.park(), a.outcome(), a.over().outcome(), a.atomic(a.fail()),
	}
	w := ends[r.IntN(len(ends))]
	w.LargeSteps = r.IntN(3) == 0
	if r.IntN(5) == 0 && w.Attempt == nil {
		w.NewOwner = newID()
	}
	if r.IntN(4) == 0 {
		w.Ending.Ref = "pay_end"
	}
	if w.Ending.ExpiresAt.IsZero() && r.IntN(2) == 0 {
		w.Ending.ExpiresAt = a.c.now.Add(24 * time.Hour).Truncate(time.Second) // not that of an open question
	}
	return w
}

// anyClaim claims the record, or takes such a claim back.
func (a *attempt) anyClaim(r *rand.Rand) write {
	b := a.next()
	if r.IntN(3) == 0 {
		watched(&b.claim.Record)
	}
	switch r.IntN(6) {
	case 0:
		return a.replacement().acquire()
	case 1:
		return b.withdraw()
	case 2:
		if len(a.seen().Steps) == 0 { // a claim is withdrawn before its handler runs
			return a.withdraw()
		}
	}
	return b.acquire()
}

// anyStep writes one of three steps.
func (a *attempt) anyStep(r *rand.Rand) write {
	name := []string{"ship", "charge", "a.b #"}[r.IntN(3)]
	ws := []step{
		a.step(name, noise(r.IntN(3000))), a.step(name, noise(10)), a.begin(name), a.beginWatched(name, a.c.now.Add(lease)),
		a.notExecuted(name), a.stepFails(name), a.stepOmitted(name), a.read(name), a.unread(name),
	}
	w := ws[r.IntN(len(ws))]
	w.First, w.InParts, w.Compensates = r.IntN(3) == 0, r.IntN(3) == 0, w.Compensates || r.IntN(3) == 0 && !w.Begin
	if w.Begin && r.IntN(3) == 0 {
		w.Ref = "pay_step"
	}
	return w
}

// anySettlement parks or resolves the record.
func (a *attempt) anySettlement(r *rand.Rand) write {
	if r.IntN(2) == 0 {
		return a.lapse()
	}
	w := a.resolve(outcomes[r.IntN(len(outcomes))])
	if w.Again = r.IntN(3) == 0; w.Ending.State == protocol.Released && len(a.seen().Steps) > 0 && r.IntN(2) == 0 {
		again := w.Again
		needed, _ := verdicts()
		w = recordsOfStep(needed[r.IntN(3)], protocol.StepWrite{Name: "absent"})(a).(settle)
		w.Again = again
	}
	return w
}

// anyChange is an operator's or a sweep's.
func (a *attempt) anyChange(r *rand.Rand) write {
	switch r.IntN(4) {
	case 0:
		return a.forget()
	case 1:
		return escalates(a)
	case 2:
		return a.postpone(time.Duration(r.IntN(60)) * time.Minute)
	}
	return a.prolong(time.Duration(r.IntN(100)-50) * time.Hour)
}
