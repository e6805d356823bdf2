package idem_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/require"
)

// Concurrent duplicates are calls with the same key at the same time.

func TestManyConcurrentDuplicatesOneExecution(t *testing.T) {
	h := idemtest.New(t, nil)
	var runs atomic.Int32
	got := idemtest.DeliverParallel(h, 64, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, unsafe.Key("t", "k"), 1,
			func(context.Context, int) (int, error) { return int(runs.Add(1)), nil })
	})
	require.EqualValues(t, 1, runs.Load())
	ran := 0
	for _, d := range got {
		if d.Ran {
			ran++
		}
		if d.Err != nil {
			require.ErrorIs(t, d.Err, idem.ErrInFlight)
			continue
		}
		require.Equal(t, 1, d.Value)
	}
	require.Equal(t, 1, ran)
}

// slowly runs a call in the background whose handler takes a while.
func slowly(t *testing.T, r *rig, key idem.Key, d time.Duration, err error) <-chan idem.Result[int] {
	t.Helper()
	done := make(chan idem.Result[int], 1)
	go func() {
		res, _ := idem.Run(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
			time.Sleep(d)
			return 77, err
		})
		done <- res
	}()
	synctest.Wait()
	return done
}

func TestWaitForAConcurrentDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &idem.Options{Wait: 10 * time.Second})
		key := unsafe.Key("t", "k")
		done := slowly(t, r, key, 5*time.Second, nil)
		start := time.Now()
		waited := mustRun(t, r, key, new(counter).run)
		require.Less(t, time.Since(start), 6*time.Second)
		live := <-done
		require.Equal(t, 77, waited.Value)
		require.Equal(t, live.Outcome.Body, waited.Outcome.Body, "both get the same bytes")
		require.True(t, waited.Outcome.Replayed)
	})
}

// What a waiter gets when the other call does not leave an outcome, or not in time.
func TestWaitEnds(t *testing.T) {
	kill := func(d time.Duration) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return idem.WithKillTime(ctx, time.Now().Add(d)) }
	}
	patient := func(ctx context.Context) context.Context { return ctx }
	leaves := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		context.AfterFunc(ctx, cancel)
		return ctx
	}
	for _, tc := range []struct {
		name   string
		op     idem.Operation
		ctx    func(context.Context) context.Context
		other  time.Duration
		err    error // of the other call's handler
		want   error
		within time.Duration
		runs   int
	}{
		{"its client has left", unsafe, leaves, time.Minute, nil, idem.ErrInFlight, 5 * time.Second, 0},
		{"the store has failed meanwhile", unsafe, patient, 2 * time.Second, nil, nil, 6 * time.Second, 0},
		{"in vain", unsafe, patient, time.Minute, nil, idem.ErrInFlight, 10 * time.Second, 0},
		{"the other call releases", unsafe, patient, 2 * time.Second, idem.NotExecuted(errPlain), nil, 3 * time.Second, 1},
		{"the other call is uncertain", unsafe, patient, 2 * time.Second, errPlain, idem.ErrOutcomeUnknown,
			3 * time.Second, 0},
		{"before the kill time", unsafe, kill(6 * time.Second), time.Minute, nil, idem.ErrInFlight, 3 * time.Second, 0},
		{"too late to run itself", slowStarter, kill(6 * time.Second), 1900 * time.Millisecond, idem.NotExecuted(errPlain),
			idem.ErrOutOfTime, 3 * time.Second, 0},
		{"late, and a replay comes for free", slowStarter, kill(6 * time.Second), 1900 * time.Millisecond, nil,
			nil, 3 * time.Second, 0},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			r, c := newRig(t, nil), new(counter)
			waiter := newRigAt(t, r.mem, r.clock, &idem.Options{Wait: 10 * time.Second})
			key := tc.op.Key("t", "k")
			done := slowly(t, r, key, tc.other, tc.err)
			before := r.record(t, key)
			if strings.HasPrefix(tc.name, "the store has failed") {
				waiter.faults.Always(idemtest.Refuse, idemtest.Get)
				time.AfterFunc(5*time.Second, waiter.faults.Heal)
			}
			start := time.Now()
			_, err := idem.Do(tc.ctx(t.Context()), waiter.engine, key, 1, c.run)
			require.LessOrEqual(t, time.Since(start), tc.within)
			if tc.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tc.want)
			}
			require.Equal(t, tc.runs, c.count())
			if tc.want == idem.ErrInFlight && tc.within < 5*time.Second {
				require.Equal(t, before, r.record(t, key), "waiting never touches the record")
			}
			<-done
		})
	}
}

var slowStarter = idem.Operation{Name: "slow", MinTime: 3500 * time.Millisecond}

// A waiter that gives up says when to try again, by the record that it read last.
func TestWaiterTellsTheLatestLease(t *testing.T) {
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		done := slowly(t, r, key, 5*time.Minute, nil)
		waiter := newRigAt(t, r.mem, r.clock, &idem.Options{Wait: time.Minute})
		_, err := idem.Do(t.Context(), waiter.engine, key, 1, new(counter).run)
		flight := errorAs[*idem.InFlightError](t, err)
		require.Greater(t, flight.LeaseLeft, 20*time.Second, "the heartbeat has renewed it")
		<-done
	})
}
