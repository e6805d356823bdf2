package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Calls that fail open beside calls that claim, in two processes over a store that loses and
// delays requests. Of the units of work at most one lands, and none that its caller was told
// had not. What is not repeatable is not claimed again once its process could write what it
// knows. What may have been executed under a claim keeps the key from another input.
func TestFailingOpenBesideClaimsUnderRandomFaults(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) { newOpenRun(t, seed, seen).play() })
	}
	for _, what := range []string{"refused", "over a lapsed claim", "failed open", "committed", "in doubt", "parked", "over an expired record"} {
		require.NotZero(t, seen[what], what)
	}
}

// openRun is one schedule.
type openRun struct {
	t         *testing.T
	seed      uint64
	rand      *rand.Rand
	mem       *memstore.Store
	bank      *openBank
	clock     *idemtest.Clock
	processes [2]*rig
	strict    bool
	held      []*idemtest.Call
	attempts  int
	ran       []int // attempts of this life that may have taken effect
	under     int   // the input of those of them that had a claim, 0 for none
	refused   []int // whose callers were told that they had not committed
	log       []string
	seen      map[string]int
}

// openBank is a store that notes which units have landed.
type openBank struct {
	*memstore.Store
	mu     sync.Mutex
	landed []int
}

// openUnit belongs to an attempt, and may be refused.
type openUnit struct {
	id        int
	refuse    error
	ambiguous bool
}

func (openUnit) Seal() bool { return true }
func (openUnit) Size() int  { return 0 }

func (b *openBank) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, ok := f.Unit.(openUnit)
	f.Unit = nil
	before, err := b.Get(ctx, f.ID)
	if err != nil {
		return err
	}
	if ok && u.refuse != nil {
		if _, err := f.Apply(before, now); err != nil {
			return err
		}
		return &protocol.RefusedError{Err: u.refuse, Ambiguous: u.ambiguous}
	}
	err = b.Store.Finish(ctx, now, f)
	if ok && err == nil && !before.Bears(f.Write) {
		b.landed = append(b.landed, u.id)
	}
	return err
}

func newOpenRun(t *testing.T, seed uint64, seen map[string]int) *openRun {
	mem := memstore.New()
	x := &openRun{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 2)), mem: mem, bank: &openBank{Store: mem}, clock: new(idemtest.Clock), attempts: 100, seen: seen}
	for i := range x.processes {
		r := &rig{mem: mem, faults: idemtest.NewFaults(x.bank), clock: x.clock, events: new(events)}
		var err error
		r.engine, err = idem.New(r.faults, &idem.Options{Now: r.clock.Now, Observer: r.events.observer})
		require.NoError(t, err)
		x.processes[i] = r
	}
	x.strict = x.n(2) == 0
	return x
}

func (x *openRun) n(n int) int { return x.rand.IntN(n) }

// op fails open in most calls.
func (x *openRun) op() idem.Operation {
	op := openOp(x.strict)
	if x.n(4) == 0 {
		op.OnStoreFailure = idem.FailClosed
	}
	return op
}

func (x *openRun) hold(_ context.Context, c *idemtest.Call) error {
	x.held = append(x.held, c)
	return c.Lost()
}

func (x *openRun) fail(r *rig) {
	faults := []idemtest.Fault{idemtest.LoseReply, idemtest.LoseRequest, x.hold, blind, idemtest.Refuse, idemtest.Pass, idemtest.Pass}
	for _, m := range []struct {
		method idemtest.Method
		most   int
	}{{idemtest.Acquire, 3}, {idemtest.Finish, 5}, {idemtest.Get, 3}, {idemtest.Settle, 2}, {idemtest.Withdraw, 3}} {
		for range x.n(m.most) {
			f := faults[x.n(len(faults))]
			if m.method == idemtest.Get && x.n(2) == 0 {
				f = idemtest.Refuse
			}
			r.faults.Next(m.method, f)
		}
	}
}

func (x *openRun) play() {
	key := openOp(x.strict).Key("t", "k")
	switch x.n(5) {
	case 0:
		released(x.t, x.processes[0], key)
	case 1: // which expires while calls come
		released(x.t, x.processes[0], key)
		x.clock.Advance(idem.DefaultRetention - time.Duration(x.n(10))*time.Minute)
	case 2:
		finished(x.t, x.processes[0], key)
		x.clock.Advance(idem.DefaultRetention + time.Duration(1+x.n(10))*time.Minute)
		x.seen["over an expired record"]++
	case 3:
		if !x.strict {
			killed(x.t, x.processes[0], key)
			x.clock.Advance(time.Hour)
			x.under = 1
			x.seen["over a lapsed claim"]++
		}
	}
	for range 2 + x.n(4) {
		r := x.processes[x.n(2)]
		x.fail(r)
		x.call(r, 0)
		for _, r := range x.processes {
			r.faults.Heal()
			require.NoError(x.t, r.engine.Flush(x.t.Context()))
			for _, ev := range r.events.take() {
				switch ev {
				case "failed_open":
					x.seen["failed open"]++
				case "parked":
					x.seen["parked"]++
				}
				x.log = append(x.log, ev)
			}
		}
		x.check()
		x.pass()
	}
	for _, c := range x.held {
		_ = c.Do(x.t.Context())
	}
	x.check()
	x.seen["committed"] += len(x.bank.landed)
}

// call makes one call. Its handler may have the other process make one while it runs.
func (x *openRun) call(r *rig, depth int) {
	x.attempts++ // another number than what was recorded before
	id, executed := x.attempts, false
	ends := []error{nil, nil, nil, errPlain, idem.Permanent(errPlain), idem.NotExecuted(errPlain)}
	n, input := x.n(len(ends)), 1
	if x.n(4) == 0 {
		input = 2
	}
	end, nothing := ends[n], n == len(ends)-1
	unit, nested := x.n(2) == 0, depth == 0 && !x.strict && x.n(4) == 0
	u := openUnit{id: id}
	if unit && x.n(3) == 0 {
		why := 3 + x.n(3)
		// While the fence of one that is not repeatable waits, its claim keeps out what another
		// attempt without a claim has done.
		u.refuse, u.ambiguous = ends[why], !x.strict && x.n(2) == 0
		nothing = nothing || end == nil && why == len(ends)-1
		x.seen["refused"]++
	}
	got, err := idem.Do(inLambda(x.t.Context()), r.engine, x.op().Key("t", "k"), input, func(ctx context.Context, _ int) (int, error) {
		executed = true
		info, _ := idem.InfoOf(ctx)
		if !info.WithoutClaim {
			if x.under != 0 && x.under != input {
				require.Fail(x.t, "another input got the key", x.said())
			}
			if !nothing {
				x.under = input
			}
		}
		if x.strict && !info.WithoutClaim && len(x.ran) > 0 {
			require.Fail(x.t, "claimed although it is not repeatable", x.said())
		}
		if unit {
			_, err := idem.UnitOf(ctx, func() idem.Unit { return u })
			require.NoError(x.t, err)
		}
		if nested {
			other := x.processes[x.n(2)]
			if other != r {
				x.fail(other)
			}
			x.call(other, 1)
			x.pass()
		}
		return id, end
	})
	x.log = append(x.log, fmt.Sprintf("attempt %d: ran %v, unit %v, end %v: %v", id, executed, unit, end, err))
	if executed && !nothing {
		x.ran = append(x.ran, id)
	}
	var commit *idem.CommitError
	switch {
	case !executed || !unit:
	case u.refuse != nil:
		x.refused = append(x.refused, id)
	case err == nil && got == id:
		require.Contains(x.t, x.bank.landed, id, x.said())
	case errors.As(err, &commit) && commit.Ambiguous:
		x.seen["in doubt"]++
	case commit != nil:
		x.refused = append(x.refused, id)
	}
}

// pass lets time pass, and what is delayed arrive.
func (x *openRun) pass() {
	switch x.n(6) {
	case 0:
		x.clock.Advance(time.Minute)
	case 1:
		x.clock.Advance(5 * time.Minute)
	}
	rec, err := x.mem.Get(x.t.Context(), openOp(true).Key("t", "k").ID())
	require.NoError(x.t, err)
	if rec != nil && !rec.ExpiresAt.IsZero() && rec.Expired(x.clock.Now()) && x.n(2) == 0 {
		x.mem.Delete(rec.ID)
	}
	if len(x.held) > 0 && x.n(2) == 0 {
		_ = x.held[x.n(len(x.held))].Do(x.t.Context())
	}
}

func (x *openRun) check() {
	if len(x.bank.landed) > 1 {
		require.Fail(x.t, "two commits", x.said())
	}
	for _, id := range x.refused {
		require.NotContains(x.t, x.bank.landed, id, x.said())
	}
}

func (x *openRun) said() string { return fmt.Sprintf("seed %d: %q", x.seed, x.log) }
