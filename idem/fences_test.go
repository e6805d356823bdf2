package idem_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// inDoubt makes n calls at once whose claims all get no answer. It makes those that lands
// chooses, before any call knows, and returns the others.
func inDoubt(t *testing.T, r *rig, key idem.Key, n int, lands func(i int) bool) (late []*idemtest.Call) {
	t.Helper()
	var sent, calls sync.WaitGroup
	var mu sync.Mutex
	i := 0
	sent.Add(n)
	r.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
		mu.Lock()
		if lands(i) {
			_ = c.Do(ctx)
		} else {
			late = append(late, c)
		}
		i++
		mu.Unlock()
		sent.Done()
		sent.Wait()
		return c.Lost()
	}, idemtest.Acquire)
	for range n {
		calls.Go(func() {
			_, err := idem.Do(context.Background(), r.engine, key, 1, fails(errPlain))
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		})
	}
	calls.Wait()
	r.faults.Heal()
	return late
}

// Many duplicates at once whose claims got no answer are taken back with one write, or with two
// if one of them has landed and another one is taken back first. None of them lands later.
func TestClaimsOfOneKeyAreTakenBackTogether(t *testing.T) {
	never := func(int) bool { return false }
	first := func(i int) bool { return i == 0 }
	for name, tc := range map[string]struct {
		op        idem.Operation
		lands     func(int) bool
		retention time.Duration
		least     int
		most      int
	}{
		"none has landed":                {safe, never, 0, 1, 1},
		"one has landed":                 {safe, first, 0, 1, 2},
		"one has landed, not repeatable": {unsafe, first, 0, 1, 2},
		"records go soon":                {safe, never, time.Minute, 32, 32 * 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c := newRig(t, nil), new(counter)
				tc.op.Retention = tc.retention
				key := tc.op.Key("t", "k")
				late := inDoubt(t, r, key, 32, tc.lands)
				require.GreaterOrEqual(t, r.count(idemtest.Withdraw), tc.least)
				require.LessOrEqual(t, r.count(idemtest.Withdraw), tc.most)
				require.Len(t, slices.DeleteFunc(r.events.take(), func(kind string) bool { return kind != "withdrawn" }), 32)
				require.Equal(t, idem.Released, r.record(t, key).State)
				for _, call := range late {
					var conflict *protocol.ConflictError
					require.ErrorAs(t, call.Do(t.Context()), &conflict)
				}
				_, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
				require.NoError(t, err)
				require.Equal(t, 1, c.count())
			})
		})
	}
}

// A withdrawal that fails takes nothing back: each claim waits in the queue then.
func TestClaimsOfOneKeyWaitTogetherForAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		key := unsafe.Key("t", "k")
		r.faults.Always(idemtest.LoseRequest, idemtest.Withdraw)
		late := inDoubt(t, r, key, 8, func(int) bool { return false })
		require.NoError(t, r.engine.Flush(t.Context()))
		require.Equal(t, idem.Released, r.record(t, key).State)
		for _, call := range late {
			require.Error(t, call.Do(t.Context()))
		}
	})
}

// A record that was seen is not believed for long, and another key's says nothing.
func TestWithdrawalIsBelievedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		doubt := func(k string) int {
			r.faults.Reset()
			inDoubt(t, r, safe.Key("t", k), 1, func(int) bool { return false })
			return r.count(idemtest.Withdraw)
		}
		require.Equal(t, 1, doubt("k"))
		require.Zero(t, doubt("k"))
		require.Equal(t, 1, doubt("another"))
		time.Sleep(time.Minute)
		require.Equal(t, 1, doubt("k"))
	})
}

// A claim over the record that was seen is not kept out by it.
func TestTakeoverInDoubtIsTakenBackByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		key := unsafe.Key("t", "k")
		inDoubt(t, r, key, 1, func(int) bool { return false })
		var late *idemtest.Call
		r.faults.Next(idemtest.Acquire, idemtest.Pass, idemtest.Hold(&late))
		_, err := idem.Do(t.Context(), r.engine, key, 1, fails(errPlain))
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.Error(t, late.Do(t.Context()))
		require.Equal(t, idem.Released, r.record(t, key).State)
	})
}

// Whatever becomes of claims and withdrawals, and in which order: none of the claims stays in the
// record, or lands once the process is done with it.
func TestNoClaimInDoubtStays(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r := newRig(t, nil)
			var mu sync.Mutex
			dice := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
			key := unsafe.Key("t", "k")
			var held []*idemtest.Call
			r.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
				if dice(3) == 0 {
					time.Sleep(time.Duration(dice(800)) * time.Millisecond)
				}
				switch dice(4) {
				case 0:
					_ = c.Do(ctx)
				case 1:
					go func() { time.Sleep(time.Duration(1+dice(3000)) * time.Millisecond); _ = c.Do(context.Background()) }()
				default:
					mu.Lock()
					held = append(held, c)
					mu.Unlock()
				}
				return c.Lost()
			}, idemtest.Acquire)
			r.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
				time.Sleep(time.Duration(dice(500)) * time.Millisecond)
				switch dice(5) {
				case 0:
					return idemtest.LoseReply(ctx, c)
				case 1:
					return idemtest.LoseRequest(ctx, c)
				case 2:
					return idemtest.Refuse(ctx, c)
				}
				return c.Do(ctx)
			}, idemtest.Withdraw)
			var calls sync.WaitGroup
			for range 6 {
				calls.Go(func() {
					time.Sleep(time.Duration(dice(1500)) * time.Millisecond)
					_, _ = idem.Do(context.Background(), r.engine, key, 1, func(context.Context, int) (int, error) { panic("it ran") })
				})
			}
			calls.Wait()
			r.faults.Heal()
			require.NoError(t, r.engine.Flush(t.Context()))
			time.Sleep(5 * time.Second)
			for _, c := range held {
				_ = c.Do(t.Context())
			}
			require.Equal(t, idem.Released, r.record(t, key).State, fmt.Sprint("seed ", seed))
		})
	}
}
