package idem_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
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
	"github.com/idem-go/idempotency/idem/protocol"
)

// A commit in doubt of an attempt without a claim is fenced although a record is in the
// way that has expired: it neither runs again, nor lands once TTL has deleted that.
func TestACommitInDoubtWithoutAClaimIsFencedOverAnExpiredRecord(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for _, refused := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				r, key := newBankRig(t), openOp(strict).Key("t", "k")
				_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (string, error) { return "old", nil })
				require.NoError(t, err)
				r.clock.Advance(2 * idem.DefaultRetention)
				var held *idemtest.Call
				r.faults.Next(idemtest.Acquire, idemtest.Refuse)
				r.faults.Next(idemtest.Finish, idemtest.Hold(&held))
				ran := 0
				run := func(ctx context.Context, n int) (string, error) {
					ran++
					return pay(effect{n: 1}, nil)(ctx, n)
				}
				_, err = idem.Do(t.Context(), r.engine, key, 1, run)
				require.ErrorIs(t, err, idem.ErrNotCommitted)
				if refused {
					if rec := r.record(t, key); rec.Expired(r.clock.Now().Add(15 * time.Minute)) {
						r.mem.Delete(key.ID())
					}
					require.Error(t, held.Do(t.Context()), "its caller has been told that it was not committed")
					require.Zero(t, r.ledger.sum())
				}
				_, err = idem.Do(t.Context(), r.engine, key, 1, run)
				if strict {
					require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
					require.Equal(t, 1, ran, "it is not repeatable")
					return
				}
				require.NoError(t, err)
				require.Equal(t, 1, r.ledger.sum(), "one of the two commits")
			})
		}
	}
}

// An attempt without a claim executed nothing, and its claim is in doubt: that does not land
// once TTL has deleted the expired record that was in its way, nor once its own end is gone.
func TestAClaimInDoubtDoesNotLandAfterAnAttemptThatExecutedNothing(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for _, expired := range []bool{true, false} {
			r, op := newRig(t, nil), openOp(strict)
			op.Retention = time.Minute
			key := op.Key("t", "k")
			if expired {
				leftExpired(t, r, key)
			}
			var held *idemtest.Call
			r.faults.Next(idemtest.Acquire, idemtest.Hold(&held))
			_, err := idem.Do(t.Context(), r.engine, key, 1, fails(idem.NotExecuted(errPlain)))
			require.Same(t, errPlain, err)
			r.clock.Advance(14 * time.Minute)
			if rec := r.record(t, key); rec.Expired(r.clock.Now()) {
				r.mem.Delete(key.ID())
			}
			require.Error(t, held.Do(t.Context()), "strict %v, over an expired record %v", strict, expired)
		}
	}
}

// The unit of work of an attempt without a claim is refused, and it says that nothing took
// effect. It has claimed what an earlier attempt left that may have: another input does not
// get the key.
func TestARefusalWithoutAClaimForgetsNoEarlierAttempt(t *testing.T) {
	for _, ambiguous := range []bool{true, false} {
		for _, before := range []string{"a lapsed claim", "a lapsed claim that cannot be read", "nothing"} {
			r, key := newBankRig(t), openOp(false).Key("t", "k")
			killed(t, r.rig, key)
			r.clock.Advance(time.Hour)
			if before == "nothing" {
				r.mem.Delete(key.ID())
			}
			r.faults.Next(idemtest.Acquire, idemtest.Refuse)
			if before == "a lapsed claim that cannot be read" {
				r.faults.Next(idemtest.Get, idemtest.Refuse)
			}
			_, err := idem.Do(t.Context(), r.engine, key, 1, pay(effect{n: 1, refuse: idem.NotExecuted(errPlain), ambiguous: ambiguous}, nil))
			require.Same(t, errPlain, err)
			c := new(counter)
			_, err = idem.Do(t.Context(), r.elsewhere(t).engine, key, 2, c.run)
			if before == "nothing" {
				require.NoError(t, err, "nothing was executed under the key")
				continue
			}
			require.ErrorIs(t, err, idem.ErrKeyReused, "in doubt %v, over %s", ambiguous, before)
			require.Zero(t, c.count())
		}
	}
}

// An end of an attempt without a claim meets a record that is free, and that the answer
// does not show. It is read, at once or with the next try.
func TestAnEndWithoutAClaimReadsWhatTheAnswerDoesNotShow(t *testing.T) {
	for name, fail := range map[string]func(*rig){
		"once":           func(r *rig) { r.faults.Next(idemtest.Finish, blind) },
		"not to be read": func(r *rig) { r.faults.Next(idemtest.Finish, blind); r.faults.Next(idemtest.Get, idemtest.Refuse) },
		"for a long time": func(r *rig) {
			r.faults.Next(idemtest.Finish, slices.Repeat([]idemtest.Fault{idemtest.BareConflict}, 10)...)
		},
	} {
		for before, leave := range map[string]func(*testing.T, *rig, idem.Key){"expired": leftExpired, "released": released} {
			t.Run(name+"/"+before, func(t *testing.T) {
				r, key := newRig(t, nil), openOp(true).Key("t", "k")
				leave(t, r, key)
				r.faults.Next(idemtest.Acquire, idemtest.Refuse)
				fail(r)
				c := new(counter)
				_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
				require.NoError(t, err)
				r.faults.Heal()
				require.NoError(t, r.engine.Flush(context.Background()))
				_, err = idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, c.run)
				require.NoError(t, err)
				require.Equal(t, 1, c.count(), "it is not repeatable")
			})
		}
	}
}

// blind makes the call, and shows no conflicting record.
func blind(ctx context.Context, c *idemtest.Call) error {
	err := c.Do(ctx)
	var conflict *protocol.ConflictError
	if errors.As(err, &conflict) {
		return &protocol.ConflictError{}
	}
	return err
}

// What an attempt could not undo whose steps are not recorded, nobody after it knows of:
// it is not taken for one that executed nothing.
func TestWhatAnAttemptWithoutAClaimCouldNotUndoIsUncertain(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, claimed := range []bool{true, false} {
			r, key := newRig(t, nil), openOp(strict).Key("t", "k")
			if !claimed {
				r.faults.Next(idemtest.Acquire, idemtest.Refuse)
			}
			_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
				_, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { return 1, nil },
					&idem.StepConfig[int]{Compensate: func(context.Context, int) error { return errors.New("503") }})
				require.NoError(t, err)
				return n, idem.NotExecuted(idem.Abort(ctx, errors.New("no stock")))
			})
			require.Error(t, err)
			c := new(counter)
			_, err = idem.Do(t.Context(), r.elsewhere(t).engine, key, 2, c.run)
			require.ErrorIs(t, err, idem.ErrKeyReused, "strict %v, claimed %v", strict, claimed)
			require.Zero(t, c.count(), "another input takes a key whose first one has an effect")
		}
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
