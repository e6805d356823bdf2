package idem_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
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

// What a waiter gets, and when: also if the other call leaves no outcome, or not in time. A call
// without a claim waits like any other, and does not take over what it waited for.
func TestWaitEnds(t *testing.T) {
	late := errors.New("too late")
	fp, err := fingerprint.JSON([]byte("1"), nil)
	require.NoError(t, err)
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
		// of the waiting call
		until   time.Duration // from its begin; zero for none
		noClaim error
	}{
		{"its client has left", unsafe, leaves, time.Minute, nil, idem.ErrInFlight, 5 * time.Second, 0, 0, nil},
		{"the other call completes", unsafe, patient, 5 * time.Second, nil, nil, 6 * time.Second, 0, 0, nil},
		{"the store has failed meanwhile", unsafe, patient, 2 * time.Second, nil, nil, 6 * time.Second, 0, 0, nil},
		{"in vain", unsafe, patient, time.Minute, nil, idem.ErrInFlight, 10 * time.Second, 0, 0, nil},
		{"the other call releases", unsafe, patient, 2 * time.Second, idem.NotExecuted(errPlain), nil,
			3 * time.Second, 1, 0, nil},
		{"the other call is uncertain", unsafe, patient, 2 * time.Second, errPlain, idem.ErrOutcomeUnknown,
			3 * time.Second, 0, 0, nil},
		{"before the kill time", unsafe, kill(6 * time.Second), time.Minute, nil, idem.ErrInFlight,
			3 * time.Second, 0, 0, nil},
		{"too late to run itself", slowStarter, kill(6 * time.Second), 1900 * time.Millisecond, idem.NotExecuted(errPlain),
			idem.ErrOutOfTime, 3 * time.Second, 0, 0, nil},
		{"late, and a replay comes for free", slowStarter, kill(6 * time.Second), 1900 * time.Millisecond, nil,
			nil, 3 * time.Second, 0, 0, nil},
		{name: "its own time ends", op: unsafe, ctx: patient, other: time.Minute, want: idem.ErrInFlight,
			within: 2 * time.Second, until: 2 * time.Second},
		{name: "its own time is over", op: unsafe, ctx: patient, other: time.Minute, want: idem.ErrInFlight, until: -1},
		{name: "its own time is later than the wait", op: unsafe, ctx: patient, other: 5 * time.Second,
			within: 6 * time.Second, until: time.Hour},
		{name: "without a claim", op: unsafe, ctx: patient, other: 5 * time.Second, within: 6 * time.Second, noClaim: late},
		{name: "without a claim, the other call releases", op: unsafe, ctx: patient, other: 2 * time.Second,
			err: idem.NotExecuted(errPlain), want: late, within: 3 * time.Second, noClaim: late},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			r := newRig(t, nil)
			waiter := rigOver(t, r.mem, r.clock, &idem.Options{Wait: 10 * time.Second})
			key := tc.op.Key("t", "k")
			done := slowly(t, r, key, tc.other, tc.err)
			before := r.record(t, key)
			if strings.HasPrefix(tc.name, "the store has failed") {
				waiter.faults.Always(idemtest.Refuse, idemtest.Get)
				time.AfterFunc(5*time.Second, waiter.faults.Heal)
			}
			start := time.Now()
			call := idem.Call{Key: key, Fingerprint: fp, NoClaim: tc.noClaim, Run: func(ctx context.Context) idem.Answer {
				_, _ = r.c.run(ctx, 1)
				return idem.Answer{Body: []byte("1")}
			}}
			if tc.until != 0 {
				call.WaitUntil = start.Add(tc.until)
			}
			out, err := waiter.engine.Execute(tc.ctx(t.Context()), call)
			require.LessOrEqual(t, time.Since(start), tc.within)
			require.GreaterOrEqual(t, time.Since(start), tc.within/2, "it waits")
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, tc.runs, r.c.count())
			if tc.want == nil && tc.runs == 0 {
				require.Equal(t, "77", string(out.Body))
				require.True(t, out.Replayed)
			}
			if tc.want == idem.ErrOutOfTime {
				require.Equal(t, 1, waiter.count(idemtest.Acquire), "nothing is claimed")
			}
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
		waiter := rigOver(t, r.mem, r.clock, &idem.Options{Wait: time.Minute})
		_, err := idem.Do(t.Context(), waiter.engine, key, 1, new(counter).run)
		flight := errorAs[*idem.InFlightError](t, err)
		require.Greater(t, flight.LeaseLeft, 20*time.Second, "the heartbeat has renewed it")
		<-done
	})
}

// whileRunning calls fn while a handler of the key runs, which then returns 1.
func whileRunning(t *testing.T, r *rig, key idem.Key, fn func()) (int, error) {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	go func() {
		<-entered
		defer close(leave)
		fn()
	}()
	return idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
		close(entered)
		<-leave
		return 1, nil
	})
}

// A burst of duplicates costs the store nothing, and is answered as the store would.
func TestDuplicatesOfAHandlerOfThisProcessAreNotAskedAbout(t *testing.T) {
	for _, op := range both {
		testOn(t, op.Name, op, func(t *testing.T, r *rig, key idem.Key) {
			_, err := whileRunning(t, r, key, func() {
				time.Sleep(5*time.Minute + time.Second) // its lease has been renewed
				r.clock.Advance(time.Second)
				_, err := idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, r.c.run)
				var answered, would *idem.InFlightError
				require.ErrorAs(t, err, &would)
				r.events.take()
				r.faults.Reset()
				for range 64 {
					refused(t, r, key, &answered, r.c.run)
					require.Equal(t, would, answered)
				}
				require.Empty(t, r.faults.Calls())
				require.Len(t, r.events.take(), 64, "in_flight each")
			})
			require.NoError(t, err)
			require.Zero(t, r.c.count())
			require.Equal(t, 1, must(t, r, key, r.c.run))
		})
	}
}

// A call that waits reads the outcome as before.
func TestDuplicateThatWaitsForAHandlerOfThisProcessGetsItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &idem.Options{Wait: 10 * time.Second})
		waited := make(chan int, 1)
		_, err := whileRunning(t, r, unsafe.Key("t", "k"), func() {
			r.faults.Reset()
			go func() {
				got := must(t, r, unsafe.Key("t", "k"), r.c.run)
				waited <- got
			}()
			time.Sleep(time.Second)
			require.NotContains(t, r.faults.Calls(), idemtest.Acquire)
		})
		require.NoError(t, err)
		require.Equal(t, 1, <-waited)
		require.Zero(t, r.c.count())
	})
}

// What this process does not know for certain, it asks.
func TestStoreIsAskedWhereTheClaimIsNotCertain(t *testing.T) {
	ask := func(t *testing.T, r *rig, key idem.Key, in int, want error) {
		t.Helper()
		r.faults.Reset()
		_, err := idem.Do(t.Context(), r.engine, key, in, fails(errPlain))
		require.ErrorIs(t, err, want)
		require.NotEmpty(t, r.faults.Calls())
	}
	key := safe.Key("t", "k")
	for name, play := range map[string]func(t *testing.T, r *rig){
		"another input": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, key, func() { ask(t, r, key, 2, idem.ErrKeyReused) })
		},
		"another key": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, key, func() { ask(t, r, safe.Key("u", "k"), 1, errPlain) })
		},
		"in shadow": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, inShadow(safe).Key("t", "k"), func() { ask(t, r, key, 1, errPlain) })
			_, _ = whileRunning(t, r, safe.Key("t", "other"),
				func() { ask(t, r, inShadow(safe).Key("t", "other"), 1, errPlain) })
		},
		"in atomic mode, without a claim": func(t *testing.T, r *rig) {
			key := atomically.Key("t", "k")
			_, _ = whileRunning(t, r, key, func() { ask(t, r, key, 1, errPlain) })
		},
		"failed open, without a claim": func(t *testing.T, r *rig) {
			key := failsOpen.Key("t", "k")
			r.faults.Next(idemtest.Acquire, idemtest.Refuse)
			_, _ = whileRunning(t, r, key, func() { ask(t, r, key, 1, errPlain) })
		},
		"the lease is over by the engine's clock": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, key, func() {
				r.clock.Advance(idem.DefaultLease)
				ask(t, r, key, 1, idem.ErrInFlight) // within the margin
			})
		},
		"the lease was lost": func(t *testing.T, r *rig) {
			_, _ = whileRunning(t, r, key, func() {
				r.clock.Advance(time.Hour)
				finished(t, r.elsewhere(t), key)
				time.Sleep(idem.DefaultLease)
				r.clock.Advance(-time.Hour)
				r.faults.Reset()
				must(t, r, key, fails(errPlain)) // it is completed
				require.NotEmpty(t, r.faults.Calls())
			})
		},
		"the handler has returned": func(t *testing.T, r *rig) {
			r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
				ask(t, r, key, 1, idem.ErrInFlight)
				return c.Do(ctx)
			})
			finished(t, r, key)
		},
		"the handler has panicked": func(t *testing.T, r *rig) {
			func() {
				defer func() { _ = recover() }()
				_, _ = idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) { panic("x") })
			}()
			ask(t, r, key, 1, errPlain)
		},
		"it is parked from the side": func(t *testing.T, r *rig) {
			key := unsafe.Key("t", "k")
			ctx := idem.WithKillTime(t.Context(), time.Now().Add(10*time.Second))
			_, _ = idem.Do(ctx, r.engine, key, 1, func(context.Context, int) (int, error) {
				time.Sleep(9900 * time.Millisecond)
				ask(t, r, key, 1, idem.ErrOutcomeUnknown)
				return 1, nil
			})
		},
	} {
		bubble(t, name, func(t *testing.T) { play(t, newRig(t, nil)) })
	}
}

// A duplicate whose claim got no answer is in flight if another call of this process has the
// key: its claim cannot land over that one, now or later, and is not taken back.
func TestClaimWithoutAnswerNextToAHandlerOfThisProcessIsInFlight(t *testing.T) {
	for name, tc := range map[string]struct {
		own, holder time.Duration // retention
		want        []string
	}{
		"its record stays":                     {0, 0, []string{"in_flight"}},
		"its record goes soon":                 {time.Minute, time.Minute, []string{"withdrawn", "store_unavailable"}},
		"its record alone goes soon":           {0, time.Minute, []string{"withdrawn", "store_unavailable"}},
		"it stays for longer than another one": {time.Minute, 0, []string{"in_flight"}},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, nil)
			op := safe
			op.Retention = tc.own
			key := op.Key("t", "k")
			op.Retention = tc.holder
			holder := op.Key("t", "k")
			sent, late := make(chan struct{}), (*idemtest.Call)(nil)
			holds := make(chan struct{})
			r.faults.Next(idemtest.Acquire, func(_ context.Context, c *idemtest.Call) error {
				late = c
				close(sent)
				<-holds
				return c.Lost()
			})
			answered := make(chan error, 1)
			go func() {
				_, err := idem.Do(t.Context(), r.engine, key, 1, fails(errPlain))
				answered <- err
			}()
			<-sent
			r.events.take()
			got, err := whileRunning(t, r, holder, func() {
				r.events.take()
				close(holds)
				require.Error(t, <-answered)
				require.Equal(t, tc.want, r.events.take())
				require.ErrorAs(t, late.Do(t.Context()), new(*protocol.ConflictError))
			})
			require.NoError(t, err)
			require.Equal(t, 1, got)
			require.Error(t, late.Do(t.Context()))
		})
	}
}
