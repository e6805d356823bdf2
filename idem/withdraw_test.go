package idem_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
)

// A first claim in doubt meets an expired record, and so does its withdrawal: it does not
// land once TTL has deleted that. So it is where the withdrawal waits in the queue.
func TestAWithdrawnClaimDoesNotLandBehindAnExpiredRecord(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *rig, idem.Key){
		"expired": leftExpired,
		"about to expire": func(t *testing.T, r *rig, key idem.Key) {
			released(t, r, key)
			r.clock.Advance(idem.DefaultRetention - time.Minute)
		},
		"expired when it comes, gone when it comes again": func(t *testing.T, r *rig, key idem.Key) {
			leftExpired(t, r, key)
			r.faults.Next(idemtest.Withdraw, idemtest.Pass, func(ctx context.Context, c *idemtest.Call) error {
				r.mem.Delete(key.ID())
				return c.Do(ctx)
			})
		},
		"not shown": func(t *testing.T, r *rig, key idem.Key) {
			leftExpired(t, r, key)
			r.faults.Next(idemtest.Withdraw, idemtest.BareConflict)
		},
	} {
		for _, queued := range []bool{false, true} {
			for _, op := range both {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r, c, key := newRig(t, nil), new(counter), op.Key("t", "k")
						if queued {
							r.faults.Next(idemtest.Withdraw, idemtest.LoseRequest)
						}
						before(t, r, key)
						var claim *idemtest.Call
						r.faults.Next(idemtest.Acquire, idemtest.Hold(&claim))
						_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
						require.ErrorIs(t, err, idem.ErrStoreUnavailable)
						require.NoError(t, r.engine.Flush(t.Context()))
						r.clock.Advance(15 * time.Minute) // as long as AWS accepts a signature
						if rec := r.record(t, key); rec.Expired(r.clock.Now()) {
							r.mem.Delete(key.ID())
						}
						require.Error(t, claim.Do(t.Context()), "the delayed claim comes too late")
						v, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
						require.NoError(t, err)
						require.Equal(t, 1, v)
					})
				})
			}
		}
	}
}

// What a valid record says is not taken away by a withdrawal.
func TestAWithdrawalLeavesWhatIsValid(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *rig, idem.Key){"completed": finished, "released": released, "a claim": killed} {
		t.Run(name, func(t *testing.T) {
			r, c, key := newRig(t, nil), new(counter), safe.Key("t", "k")
			before(t, r, key)
			old := r.record(t, key)
			r.faults.Next(idemtest.Acquire, idemtest.LoseRequest)
			_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Equal(t, old, r.record(t, key))
		})
	}
}

// A step ends just when its attempt is being parked from the side: the handler still runs,
// and keeps its claim.
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
		e, err := idem.New(mem, &idem.Options{Now: now})
		require.NoError(t, err)
		other, err := idem.New(mem, nil)
		require.NoError(t, err)
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
			_, _ = idem.Do(t.Context(), other, key, 1, func(ctx context.Context, n int) (int, error) { others.Add(1); return n, nil })
			return n, nil
		})
		require.Zero(t, others.Load(), "two handlers side by side")
	})
}
