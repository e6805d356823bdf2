package sim

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// Fates that chance alone has, for calls to the store where callers come at the same time.
const (
	Twice      Fate = "arrives twice"
	Slow       Fate = "is slow"
	Unreadable Fate = "gets a reply that cannot be read"
	Bare       Fate = "is refused without the record"
)

// deadly reports whether a process does not go on after the fate as if nothing had happened.
func (f Fate) deadly() bool { return f == KilledFirst || f == KilledAfter || f == Frozen }

// chance decides what a plan does not.
type chance struct {
	*dice  // nil if nothing is left to chance
	seed   uint64
	one    int  // of so many calls goes wrong
	left   int  // faults
	crowd  bool // callers come at the same time
	skewed bool // clocks differ
	mild   bool // no process dies or freezes
	lapses bool // no lease is renewed
}

// dice are thrown at moments that differ, or by one goroutine: so the same seed gives the same run.
type dice struct {
	mu sync.Mutex
	*rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{Rand: rand.New(rand.NewPCG(seed, stream))} }

func (d *dice) throw(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.IntN(n)
}

// Wander makes one call in seven go wrong, up to a number of faults. A seed decides which ones and how. With odd seeds
// functions have a time-out, which ends frozen processes. With even seeds frozen processes go on.
func (w *World) Wander(seed uint64, faults int) {
	w.plan, w.limited = Plan{}, seed%2 == 1
	w.chance = chance{dice: newDice(seed, 1), seed: seed, one: 7, left: faults}
}

// Crowd has callers come at the same time, to two processes, while sweeps come, late requests arrive, frozen processes
// go on and TTL deletes. Each call takes time, one in some goes wrong, and with half of the seeds the clocks of
// processes differ. Then nothing goes wrong any more, and the request is delivered as ever.
func (w *World) Crowd(seed uint64) {
	w.Wander(seed, 1000)
	w.chance.one, w.chance.crowd, w.chance.skewed = []int{6, 15, 40}[w.chance.throw(3)], true, seed%4 > 1
	w.chance.mild, w.chance.lapses = w.chance.throw(2) == 0, w.chance.throw(3) == 0
}

type diceKey struct{}

// Draw returns a number below n: 0 where nothing is left to chance. Each delivery has dice of its own, in its context.
func (w *World) Draw(ctx context.Context, n int) int {
	w.mu.Lock()
	d := w.chance.dice
	if w.chance.left == 0 {
		d = nil
	}
	w.mu.Unlock()
	if d == nil {
		return 0
	}
	if own, ok := ctx.Value(diceKey{}).(*dice); ok {
		d = own
	}
	return d.throw(n)
}

// draw decides on a call.
func (w *World) draw(ctx context.Context, call string) Fate {
	if w.Draw(ctx, w.chance.one) != 1 {
		return Pass
	}
	fates := Fates
	if w.chance.crowd && !strings.Contains(call, ":") {
		fates = append(fates[:len(fates):len(fates)], Twice, Slow, Unreadable, Bare)
	}
	switch fate := fates[w.Draw(ctx, len(fates))]; {
	case fate == Frozen && w.limited, fate == TimedOut && !w.limited, fate.deadly() && w.chance.mild:
		return Pass
	case (fate == Unreadable || fate == Bare) && call == "Withdraw":
		return Pass // it is an answer, after which a claim may stay
	case fate == Refused && w.chance.crowd && strings.Contains(call, ": undo "):
		return Pass // what can never be undone is never settled
	default:
		return fate
	}
}

// Pause waits, for about the longest time at most, or until the context ends. It always waits: what follows is later.
func (w *World) Pause(ctx context.Context, longest time.Duration) {
	select {
	case <-time.After(time.Microsecond + time.Duration(w.Draw(ctx, int(longest)))):
	case <-ctx.Done():
	}
}

// skew is how much the clock of a new process differs, half the margin at most.
func (w *World) skew() time.Duration {
	if !w.chance.skewed {
		return 0
	}
	return time.Duration(w.Draw(context.Background(), int(idem.DefaultMargin))) - idem.DefaultMargin/2
}
