package idem_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// held is a network: it keeps what it is given and delivers it later.
type held struct{ calls []*idemtest.Call }

func (h *held) hold(apply bool) idemtest.Fault {
	return func(ctx context.Context, c *idemtest.Call) error {
		h.calls = append(h.calls, c)
		if apply {
			_ = c.Do(ctx)
		}
		return c.Lost()
	}
}

// All replies of a claim lost: the call fails, the retry is not blocked, and the claim that is delivered after its
// withdrawal changes nothing, also once TTL has deleted what was in its way. So it is where the withdrawal gets no
// reply either, and waits in the queue.
func TestClaimWithAllRepliesLost(t *testing.T) {
	brief := idem.Operation{Name: "brief", Retention: time.Second}
	for _, tc := range []struct {
		name      string
		op        idem.Operation
		before    play
		passes    int  // claims before the one that is lost
		uncertain bool // what was there before
	}{
		{"create", unsafe, nothing, 0, false},
		{"create, repeatable", safe, nothing, 0, false},
		{"create, with a short retention", brief, nothing, 0, false},
		{"take over", safe, all(killed, twoDays), 1, true},
		{"take over steps", safe, leaving(charged), 1, true},
		{"claim a released record", unsafe, released, 1, false},
		{"replace an expired", unsafe, leftExpired, 1, false},
		{"create over an expired", unsafe, leftExpired, 0, false},
		{"create over an expired, repeatable", safe, leftExpired, 0, false},
		{"create over one that expires soon", unsafe, expiresSoon, 0, false},
		{"create over an expired that TTL deletes", safe, all(leftExpired, goneBeforeTheSecond("Withdraw")), 0, false},
		{"create over an expired that is not shown", safe, all(leftExpired, faulty("Withdraw", idemtest.BareConflict)), 0,
			false},
	} {
		for _, applied := range []bool{false, true} {
			for _, until := range []string{"", "flush", "next call"} {
				testOn(t, fmt.Sprintf("%s, applied %v, withdrawal waits for %q", tc.name, applied, until), tc.op,
					func(t *testing.T, r *rig, key idem.Key) {
						var net held
						reported := []string{"withdrawn", "store_unavailable"}
						if until != "" {
							r.faults.Next(idemtest.Withdraw, net.hold(false))
							reported[0] = "outcome_queued"
						}
						tc.before(t, r, key)
						r.events.take()
						for range tc.passes {
							r.faults.Next(idemtest.Acquire, idemtest.Pass)
						}
						r.faults.Next(idemtest.Acquire, net.hold(applied))
						refused(t, r.inLambda(), key, idem.ErrStoreUnavailable, r.c.run)
						require.Equal(t, reported, r.events.take())
						require.Zero(t, r.c.count())
						claim := net.calls[0]

						if until == "next call" { // of the process, which takes it back first
							require.Equal(t, 1, must(t, r.inLambda(), key, r.c.run))
							require.Equal(t, []string{"outcome_landed", "took_over", "completed"}, r.events.take())
							done := r.record(t, key)
							require.Error(t, claim.Do(t.Context()))
							require.NoError(t, net.calls[1].Do(t.Context()), "it has landed, and was claimed over")
							require.Equal(t, done, r.record(t, key))
							return
						}
						require.NoError(t, r.engine.Flush(t.Context()))
						withdrawn := r.record(t, key)
						require.Equal(t, idem.Released, withdrawn.State)
						require.Equal(t, tc.uncertain, withdrawn.Uncertain, "a stricter deployment parks it")
						require.Equal(t, len(withdrawn.Steps) > 0, withdrawn.ExpiresAt.IsZero(), "steps wait, however long")
						require.Error(t, claim.Do(t.Context()), "the delayed claim comes too late")
						r.clock.Advance(15 * time.Minute) // as long as AWS accepts a signature
						swept(t, r, key)
						require.Error(t, claim.Do(t.Context()))
						require.Equal(t, 1, must(t, r.elsewhere(t), key, r.c.run))
						require.Error(t, claim.Do(t.Context()))
						require.Equal(t, idem.Completed, r.state(t, key))
						require.Equal(t, 1, r.c.count())
					})
			}
		}
	}
}

// A step ends just when its attempt is being parked from the side: the handler still runs, and keeps its claim.
func TestParkingFromTheSideReleasesNoHandlerThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		goOn, recorded := make(chan struct{}), make(chan struct{})
		var once sync.Once
		// The clock stops the timer's goroutine once it has seen the step open.
		now := func() time.Time {
			pc := make([]uintptr, 32)
			frames := runtime.CallersFrames(pc[:runtime.Callers(1, pc)])
			ending := false
			for {
				f, more := frames.Next()
				ending = ending || strings.HasSuffix(f.Function, ".recordEnding") || strings.HasSuffix(f.Function, ".bounded")
				if ending && strings.HasSuffix(f.Function, ".parkFromTheSide") {
					once.Do(func() { close(goOn); <-recorded })
				}
				if !more {
					return time.Now()
				}
			}
		}
		e, other := engineOver(t, mem, &idem.Options{Now: now}), engineOver(t, mem, nil)
		key := idem.Operation{Name: "safe", Repeat: idem.Repeatable, MinTime: time.Millisecond}.Key("t", "k")
		var others atomic.Int32
		ctx := idem.WithKillTime(t.Context(), time.Now().Add(4*time.Second))
		_, _ = idem.Do(ctx, e, key, 1, func(ctx context.Context, n int) (int, error) {
			_, _ = idem.Step(ctx, "charge", func(context.Context) (int, error) { <-goOn; return 1, nil },
				&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			close(recorded)
			time.Sleep(50 * time.Millisecond)
			rec, err := mem.Get(context.Background(), key.ID())
			require.NoError(t, err)
			require.NotEqual(t, idem.Released, rec.State)
			_, _ = idem.Do(t.Context(), other, key, 1,
				func(ctx context.Context, n int) (int, error) { others.Add(1); return n, nil })
			return n, nil
		})
		require.Zero(t, others.Load(), "two handlers side by side")
	})
}

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
		calls.Go(func() { refused(t, r.in(context.Background()), key, idem.ErrStoreUnavailable, fails(errPlain)) })
	}
	calls.Wait()
	r.faults.Heal()
	return late
}

// Many duplicates at once whose claims got no answer are taken back with one write, or with two
// if one of them has landed and another one is taken back first. A withdrawal that fails takes nothing back: each claim
// waits in the queue then. None of them lands later.
func TestClaimsOfOneKeyAreTakenBackTogether(t *testing.T) {
	never := func(int) bool { return false }
	first := func(i int) bool { return i == 0 }
	soon := safe
	soon.Retention = time.Minute
	for name, tc := range map[string]struct {
		op       idem.Operation
		lands    func(int) bool
		fault    idemtest.Fault // of the withdrawals
		least    int
		most     int
		reported string
	}{
		"none has landed":                {safe, never, idemtest.Pass, 1, 1, "withdrawn"},
		"one has landed":                 {safe, first, idemtest.Pass, 1, 2, "withdrawn"},
		"one has landed, not repeatable": {unsafe, first, idemtest.Pass, 1, 2, "withdrawn"},
		"records go soon":                {soon, never, idemtest.Pass, 32, 32 * 8, "withdrawn"},
		"the store is down":              {unsafe, never, idemtest.LoseRequest, 1, 32, "outcome_queued"},
	} {
		testOn(t, name, tc.op, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Always(tc.fault, idemtest.Withdraw)
			late := inDoubt(t, r, key, 32, tc.lands)
			require.GreaterOrEqual(t, r.count(idemtest.Withdraw), tc.least)
			require.LessOrEqual(t, r.count(idemtest.Withdraw), tc.most)
			require.Len(t, slices.DeleteFunc(r.events.take(), func(kind string) bool { return kind != tc.reported }), 32)
			require.NoError(t, r.engine.Flush(t.Context()))
			require.Equal(t, idem.Released, r.state(t, key))
			for _, call := range late {
				require.ErrorAs(t, call.Do(t.Context()), new(*protocol.ConflictError))
			}
			must(t, r, key, r.c.run)
			require.Equal(t, 1, r.c.count())
		})
	}
}

// A record that was seen is not believed for long, and another key's says nothing.
func TestWithdrawalIsBelievedForAMinute(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
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
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		inDoubt(t, r, key, 1, func(int) bool { return false })
		var late *idemtest.Call
		r.faults.Next(idemtest.Acquire, idemtest.Pass, idemtest.Hold(&late))
		refused(t, r, key, idem.ErrStoreUnavailable, fails(errPlain))
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

// An outcome of a short retention may be deleted within the time for which a withdrawal would be
// remembered: nothing but a withdrawal of its own keeps a claim out then.
func TestAWithdrawalIsNotRememberedForAShortRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op := idem.Operation{Name: "short", Retention: 3 * time.Second}
		r, key := rigOn(t, op)
		r.clock.Advance(500 * time.Millisecond) // no whole second, at which the hour is not over it
		// One claim in doubt is taken back: there is a record for an hour.
		r.faults.Next(idemtest.Acquire, idemtest.LoseRequest)
		refused(t, r.inLambda(), key, idem.ErrStoreUnavailable, new(counter).run)
		// Another process runs the key.
		must(t, r.elsewhere(t).inLambda(), key, new(counter).run)
		// It has expired, and a claim of the first process finds TTL at work, or nothing.
		r.clock.Advance(10 * time.Second)
		time.Sleep(10 * time.Second)
		r.mem.Delete(key.ID())
		var claim *idemtest.Call
		r.faults.Next(idemtest.Acquire, idemtest.Hold(&claim))
		refused(t, r.inLambda(), key, idem.ErrStoreUnavailable, new(counter).run)
		require.NoError(t, r.engine.Flush(t.Context()))
		r.clock.Advance(10 * time.Minute)
		require.Error(t, claim.Do(t.Context()), "the claim that was taken back lands over nothing")
		must(t, r.inLambda(), key, new(counter).run)
	})
}

// A withdrawal meets an expired record, and the refusal does not show it. TTL deletes that, and the claim lands
// before the withdrawal reads what stands in its way: its own claim, which it takes for another one's, and leaves.
func TestAWithdrawalThatMeetsItsOwnClaimTakesItBack(t *testing.T) {
	for _, op := range both {
		testOn(t, op.Name, op, func(t *testing.T, r *rig, key idem.Key) {
			leftExpired(t, r, key)
			var claim *idemtest.Call
			r.faults.Next(idemtest.Acquire, idemtest.Hold(&claim))
			r.faults.Next(idemtest.Withdraw, func(ctx context.Context, c *idemtest.Call) error {
				require.Error(t, c.Do(ctx))
				r.mem.Delete(key.ID())
				require.NoError(t, claim.Do(ctx))
				return &protocol.ConflictError{} // whatever stands between has not passed the item on
			})
			refused(t, r.inLambda(), key, idem.ErrStoreUnavailable, new(counter).run)
			require.NoError(t, r.engine.Flush(t.Context()))
			require.NotEqual(t, idem.InProgress, r.state(t, key), "nothing runs, and withdrawn is reported")
		})
	}
}

// A call that fails open and has no time left for its handler reports that alone.
func TestFailingOpenIsReportedIfTheHandlerRuns(t *testing.T) {
	op := failsOpen
	op.MinTime = 3 * time.Second
	inBubble(t, op, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Next(idemtest.Acquire, idemtest.BlackHole)
		r.faults.Next(idemtest.Withdraw, idemtest.BlackHole)
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		refused(t, r.in(ctx), key, nil, r.c.run)
		require.Zero(t, r.c.count())
		require.NotContains(t, r.events.take(), "failed_open")
	})
}
