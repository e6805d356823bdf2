package idem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// A caller whose handler ran is never told that nothing was executed, also where
// the conflicting record cannot be read.
func TestAtomicAfterItsHandlerNeverSaysThatNothingRan(t *testing.T) {
	r, key := rigOn(t, atomically)
	finished(t, r, key)
	r.faults.Next(idemtest.Get, readsNothing)
	r.faults.Always(idemtest.Refuse, idemtest.Result)
	err := refused(t, r, key, idem.ErrNotCommitted, pay(effect{n: 1}, nil))
	require.NotErrorIs(t, err, idem.ErrStoreUnavailable)
	failed := errorAs[*idem.CommitError](t, err)
	require.False(t, failed.Ambiguous, "another call's outcome stands")
	require.Equal(t, idem.Completed, failed.State)
	require.Zero(t, r.committed())
}

// A conflict that shows no record may hide that an earlier try is still under way:
// the reply to the second try's write says nothing about the first.
func TestCommitSentAgainKeepsItsDoubt(t *testing.T) {
	for name, refuse := range map[string]error{"refused": errPlain, "permanently": idem.Permanent(errPlain)} {
		t.Run(name, func(t *testing.T) {
			r, key := rigOn(t, unsafe)
			var held *idemtest.Call
			r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
				_ = idemtest.Hold(&held)(ctx, c)
				return &protocol.ConflictError{}
			})
			e := &effect{n: 1}
			r.faults.Next(idemtest.Get, func(ctx context.Context, c *idemtest.Call) error {
				e.refuse = refuse // from now on
				return c.Do(ctx)
			})
			errs(t, r, key, func(ctx context.Context, _ int) (string, error) {
				_, err := idem.UnitOf(ctx, func() idem.Unit { return e })
				return "paid", err
			})
			before := r.state(t, key)
			e.refuse = nil
			require.NotNil(t, held)
			require.Error(t, held.Do(t.Context()))
			require.Equal(t, before, r.state(t, key), "delivered late, it changes nothing")
			require.Zero(t, r.committed())
		})
	}
}

// A commit that has landed is the call's outcome, whatever stands in the way of learning it:
// its reply is lost, or a later try's is a refusal, and by then somebody keeps the record for
// longer, or another call has the next life of the key.
func TestACommitThatLandedIsNotTakenForALostLease(t *testing.T) {
	prolonged := func(t *testing.T, r *rig, key idem.Key) { r.prolong(t, key) }
	for name, tc := range map[string]struct {
		then      func(*testing.T, *rig, idem.Key)
		refused   bool             // by the next try, which the store makes by itself
		afterward []idemtest.Fault // of what the call writes then
	}{
		"lost":                              {},
		"refused":                           {refused: true},
		"lost, kept for longer":             {then: prolonged},
		"refused, kept for longer":          {then: prolonged, refused: true},
		"lost, kept for longer, fence lost": {then: prolonged, afterward: []idemtest.Fault{idemtest.LoseRequest}},
		"lost, expired and claimed by another": {then: func(t *testing.T, r *rig, key idem.Key) {
			r.clock.Advance(48 * time.Hour)
			next := r.record(t, key).Clone()
			next.State, next.Owner, next.Write, next.Body = idem.InProgress, "another", "another.0", protocol.Body{}
			next.LeaseUntil = r.clock.Now().Add(time.Minute)
			require.NoError(t, r.mem.Acquire(t.Context(), r.clock.Now(),
				protocol.Claim{Record: *next, Seen: r.record(t, key).Write, Replace: true}))
		}},
	} {
		for _, op := range append(both, atomically) {
			t.Run(fmt.Sprintf("%s/%s %d", name, op.Name, op.Mode), func(t *testing.T) {
				r, key := rigOn(t, op)
				r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
					require.NoError(t, c.Do(ctx))
					if tc.then != nil {
						tc.then(t, r, key)
					}
					r.faults.Next(idemtest.Finish, tc.afterward...)
					r.faults.Next(idemtest.Withdraw, tc.afterward...)
					if tc.refused {
						return &protocol.RefusedError{Err: errPlain, Ambiguous: true}
					}
					return c.Lost()
				})
				res := mustRun(t, r, key, pay(effect{n: 1}, nil))
				require.Equal(t, "paid", res.Value)
				require.True(t, res.Outcome.Executed)
				require.Equal(t, idem.Completed, res.Outcome.RecordState)
				require.Equal(t, 1, r.committed())
				told := r.events.take()
				require.Equal(t, "completed", told[len(told)-1], "%v", told)
				require.NotContains(t, told, "lease_lost")
			})
		}
	}
}

// A network that does not support something is not a store that does not: the
// commit may have landed.
func TestUnsupportedIsTheStoresWordAlone(t *testing.T) {
	for _, op := range []idem.Operation{safe, unsafe, atomically} {
		r, key := rigOn(t, op)
		var held *idemtest.Call
		r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
			_ = idemtest.Hold(&held)(ctx, c)
			return &idem.StoreError{Op: "Finish", Ambiguous: true, Err: syscall.EOPNOTSUPP}
		})
		refused(t, r, key, idem.ErrNotCommitted, pay(effect{n: 1}, nil))
		require.Error(t, held.Do(t.Context()), "it is fenced")
		require.Zero(t, r.committed())
	}
}

// An end that waits in the queue keeps no unit of work alive: it is not counted
// there, and is never written later.
func TestQueueHoldsNoUnit(t *testing.T) {
	r := newRig(t, nil)
	var unit weak.Pointer[effect]
	r.faults.Next(idemtest.Finish, idemtest.LoseRequest)
	refused(t, r.inLambda(), safe.Key("t", "k"), errPlain, func(ctx context.Context, _ int) (string, error) {
		e := &effect{n: 1}
		unit = weak.Make(e)
		_, err := idem.UnitOf(ctx, func() idem.Unit { return e })
		require.NoError(t, err)
		return "", errPlain
	})
	require.Equal(t, idem.InProgress, r.state(t, safe.Key("t", "k")), "it waits")
	runtime.GC()
	require.Nil(t, unit.Value())
}

// What undoes steps in a goroutine that the handler did not wait for keeps the
// operation from having an outcome, as a step does that still runs.
func TestHandlerThatDoesNotWaitForAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, key := rigOn(t, safe)
		var wg sync.WaitGroup
		undoing, goOn := make(chan struct{}), make(chan struct{})
		_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
			_, err := idem.Step(ctx, "book", func(context.Context) (int, error) { return 1, nil },
				&idem.StepConfig[int]{Compensate: func(context.Context, int) error {
					select {
					case <-undoing:
					default:
						close(undoing)
						<-goOn
					}
					return nil
				}})
			require.NoError(t, err)
			wg.Go(func() { _ = idem.Abort(ctx, errPlain) })
			<-undoing
			return pay(effect{n: 1}, nil)(ctx, n)
		})
		close(goOn)
		wg.Wait()
		require.ErrorAs(t, err, new(*idem.ConfigError))
		require.Zero(t, r.committed(), "the result does not stand: its steps are being undone")
		require.Equal(t, idem.Released, r.state(t, key))
	})
}

// A goroutine that is left behind may speak up at any time.
func TestLateCompensateWhileARefusalIsUndone(t *testing.T) {
	r, key := rigOn(t, safe)
	var wg sync.WaitGroup
	_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
		_, err := idem.Step(ctx, "book", func(context.Context) (int, error) { return 1, nil },
			&idem.StepConfig[int]{Compensate: func(context.Context, int) error { return nil }})
		require.NoError(t, err)
		wg.Go(func() {
			<-ctx.Done()
			var config *idem.ConfigError
			for range 100 {
				if err := idem.Abort(ctx, errPlain); !errors.As(err, &config) {
					t.Errorf("late: %v", err)
				}
			}
		})
		return pay(effect{n: 1, refuse: idem.Permanent(errPlain)}, nil)(ctx, n)
	})
	wg.Wait()
	require.Same(t, errPlain, err)
	require.Equal(t, idem.Failed, r.state(t, key))
}

// Takeovers, and what takes them back, are of the life of the key that they have seen.

// A withdrawal of a takeover that comes after that life makes no record: its steps would
// be skipped in the next life.
func TestALateWithdrawalBringsNoStepsBack(t *testing.T) {
	op := idem.Operation{Name: "short", Repeat: idem.Repeatable, Retention: time.Minute}
	r, key := rigOn(t, op)
	handler := func(last error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			_, err := idem.Step(ctx, "charge", r.e.step("charge"), nil)
			require.NoError(t, err)
			return "ok", last
		}
	}
	errs(t, r, key, steps(handler(errPlain)))
	require.Equal(t, idem.Released, r.state(t, key))

	// A takeover whose request is lost, and a withdrawal of it that is delayed.
	var held *idemtest.Call
	r.faults.Next(idemtest.Acquire, idemtest.Pass, idemtest.LoseRequest)
	r.faults.Next(idemtest.Withdraw, idemtest.Hold(&held))
	refused(t, r, key, idem.ErrStoreUnavailable, steps(handler(nil)))

	// Another process completes the operation; the outcome expires, and TTL deletes it.
	must(t, r.elsewhere(t), key, steps(handler(nil)))
	r.clock.Advance(5 * time.Minute)
	r.mem.Delete(key.ID())
	require.Error(t, held.Do(t.Context()))
	require.Nil(t, r.record(t, key))
	must(t, r.elsewhere(t), key, steps(handler(nil)))
	require.Equal(t, 2, r.e.ran("charge"), "once in each life")
}

// Whether a record has expired is decided once: a clock that is set back a moment later
// makes an attempt without outcome no outcome of the expired record's.
func TestAnAtomicAttemptOverAnExpiredRecordGoesByOneReadingOfTheClock(t *testing.T) {
	for reading := range 12 {
		r, key := rigOn(t, atomically)
		errs(t, r, key, func(context.Context, int) (int, error) { return 0, idem.Permanent(errPlain) })
		over := r.record(t, key).ExpiresAt.Add(idem.DefaultMargin)
		readings := 0
		engine, err := idem.New(r.mem, &idem.Options{Now: func() time.Time {
			if readings++; readings > reading {
				return over.Add(-time.Millisecond)
			}
			return over
		}})
		require.NoError(t, err)
		res, _ := idem.Run(t.Context(), engine, key, 1, func(context.Context, int) (int, error) { return 0, errPlain })
		require.False(t, res.Outcome.Executed && res.Outcome.RecordState == idem.Failed, "set back after reading %d", reading)
	}
}

// A commit in atomic mode that gets no answer never lands once its caller has been answered that it has not, whatever
// TTL deletes: the expired record in its way is none, one that expires soon is soon none, and it may not even have
// been read. Its withdrawal may get no answer either. One that is answered makes the record anew.
func TestAnAtomicCommitInDoubtOverWhatGoesNeverLands(t *testing.T) {
	unread := faulty(idemtest.Get, readsNothing)
	for name, tc := range map[string]struct {
		before   play
		meantime play           // while the handler runs
		withdraw idemtest.Fault // what becomes of the withdrawal
		state    idem.State     // that the caller is told, and that is left
	}{
		"deleted before the commit":             {leftExpired, deleted, idemtest.Pass, idem.Absent},
		"expired, and not read":                 {all(leftExpired, unread), nothing, idemtest.Pass, idem.Released},
		"expires soon, and not read":            {all(expiresSoon, unread), nothing, idemtest.Pass, idem.Released},
		"expired, and not read, nor withdrawn":  {all(leftExpired, unread), nothing, idemtest.LoseRequest, idem.Released},
		"deleted before the commit is answered": {leftExpired, deleted, nil, idem.Completed},
	} {
		testOn(t, name, atomically, func(t *testing.T, r *rig, key idem.Key) {
			tc.before(t, r, key)
			var held *idemtest.Call
			if tc.withdraw != nil {
				r.faults.Next(idemtest.Finish, idemtest.Hold(&held))
				r.faults.Next(idemtest.Withdraw, tc.withdraw)
			}
			res, err := idem.Run(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
				tc.meantime(t, r, key)
				return pay(effect{n: 1}, nil)(ctx, n)
			})
			if tc.withdraw == nil {
				require.NoError(t, err)
				require.True(t, res.Outcome.Executed)
				require.Equal(t, 1, r.record(t, key).Attempt)
				require.Equal(t, 1, r.committed())
				return
			}
			failed := errorAs[*idem.CommitError](t, err)
			require.False(t, failed.Ambiguous)
			require.Equal(t, tc.state, failed.State)
			require.NotContains(t, r.events.take(), "outcome_queued")
			r.clock.Advance(10 * time.Minute)
			swept(t, r, key)
			require.Error(t, held.Do(t.Context()), "AWS takes a signed request for 15 minutes")
			require.Equal(t, tc.state, r.state(t, key))
			require.Zero(t, r.committed())
		})
	}
}
