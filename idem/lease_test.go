package idem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/stretchr/testify/require"
)

// count returns how often the method was called.
func (r *rig) count(method idemtest.Method) int {
	n := 0
	for _, c := range r.faults.Calls() {
		if c == method {
			n++
		}
	}
	return n
}

// shortened is a context in Lambda, minutes before its kill time, whose deadline was set earlier: the engine cannot
// tell it from Lambda's own.
func shortened(t *testing.T, explicit bool) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	t.Cleanup(cancel)
	if explicit {
		end, _ := ctx.Deadline()
		ctx = idem.WithKillTime(ctx, end)
	}
	return ctx
}

// While a handler runs no other one does, and its outcome is recorded with all its time. A deadline that is not the
// kill time ends its context, and not its claim. What ends in time is never renewed: it costs no call.
func TestHeartbeatKeepsTheClaim(t *testing.T) {
	tenSeconds := func(t *testing.T) context.Context {
		return idem.WithKillTime(t.Context(), time.Now().Add(10*time.Second))
	}
	lambdas := func(t *testing.T) context.Context { return shortened(t, false) }
	wrappers := func(t *testing.T) context.Context { return shortened(t, true) }
	const lambda, managed = "AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_INITIALIZATION_TYPE=lambda-managed-instances"
	leases := 10*idem.DefaultLease - time.Millisecond
	for _, tc := range []struct {
		name     string
		op       idem.Operation
		env      string
		ctx      func(*testing.T) context.Context
		runs     time.Duration
		renewals int
	}{
		{"for ten leases", safe, "", (*testing.T).Context, leases, 29},
		{"for ten leases, not repeatable", unsafe, "", (*testing.T).Context, leases, 29},
		{"Lambda's context is shortened", safe, lambda, lambdas, 100 * time.Second, 10},
		{"a wrapper's", safe, "", wrappers, 100 * time.Second, 10},
		{"on a managed instance", unsafe, managed, tenSeconds, 100 * time.Second, 10},
		{"until the end of its context", safe, "", wrappers, 2 * time.Second, 0},
		{"until then, not repeatable", unsafe, "", wrappers, 2 * time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if name, value, _ := strings.Cut(tc.env, "="); name != "" {
				t.Setenv(name, cmp.Or(value, "127.0.0.1:9001"))
			}
			inBubble(t, tc.op, func(t *testing.T, r *rig, key idem.Key) {
				res := mustRun(t, r.in(tc.ctx(t)), key, func(context.Context, int) (int, error) {
					for end := time.Now().Add(tc.runs); time.Now().Before(end); {
						time.Sleep(min(time.Until(end), time.Second))
						refused(t, r.elsewhere(t), key, idem.ErrInFlight, new(counter).run)
						rec := r.record(t, key)
						if tc.op.Repeat == idem.Repeatable {
							require.WithinDuration(t, rec.LeaseUntil.Add(idem.DefaultRetention), rec.ExpiresAt, time.Second)
						} else {
							require.Zero(t, rec.ExpiresAt)
						}
					}
					if tc.renewals > 0 {
						r.faults.Next(idemtest.Finish, slow(time.Second, idemtest.Pass))
					}
					return 1, nil
				})
				require.False(t, res.Outcome.Queued)
				require.InDelta(t, tc.renewals, r.count(idemtest.Extend), 2*min(1, float64(tc.renewals)), "three to a lease")
				renewals := r.count(idemtest.Extend)
				time.Sleep(time.Hour)
				require.Equal(t, renewals, r.count(idemtest.Extend), "none after the handler")
				require.Equal(t, idem.Completed, r.state(t, key))
			})
		})
	}
}

// A renewed lease counts from when the renewal was sent, not from its reply, which may
// be slow: the holder stops before the lease that the store holds is over.
func TestSlowRenewalCountsFromItsSending(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Next(idemtest.Extend, func(ctx context.Context, c *idemtest.Call) error {
			err := c.Do(ctx) // lands at once
			time.Sleep(4900 * time.Millisecond)
			return err
		})
		r.faults.Always(idemtest.BlackHole, idemtest.Extend)
		refused(t, r, key, nil, func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
			require.False(t, r.clock.Now().After(r.record(t, key).LeaseUntil))
			return 0, ctx.Err()
		})
	})
}

// A renewal on its way when the handler ends is called off, and changes nothing if it comes late.
func TestHandlerEndsDuringARenewal(t *testing.T) {
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		var late *idemtest.Call
		r.faults.Next(idemtest.Extend, func(ctx context.Context, c *idemtest.Call) error {
			late = c
			return idemtest.BlackHole(ctx, c)
		})
		start := time.Now()
		must(t, r, key, lasts(11*time.Second))
		require.Equal(t, 11*time.Second, time.Since(start))
		synctest.Wait()
		done := r.record(t, key)
		require.Error(t, late.Do(t.Context()))
		require.Equal(t, done, r.record(t, key))
	})
}

func TestFailingHeartbeat(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault idemtest.Fault
		heal  time.Duration // after the start; zero for never
		lost  bool
	}{
		{"two fail", idemtest.Refuse, 14 * time.Second, false},
		{"lost replies are renewals too, but not known to be", idemtest.LoseReply, 14 * time.Second, false},
		{"always refused", idemtest.Refuse, 0, true},
		{"black hole", idemtest.BlackHole, 0, true},
		{"replies always lost", idemtest.LoseReply, 0, true},
	} {
		testOn(t, tc.name, safe, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Always(tc.fault, idemtest.Extend)
			start := time.Now()
			if tc.heal > 0 {
				time.AfterFunc(tc.heal, r.faults.Heal)
			}
			must(t, r, key, func(ctx context.Context, _ int) (int, error) {
				select {
				case <-ctx.Done():
					require.True(t, tc.lost)
					require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
					held := time.Since(start)
					require.Less(t, held, idem.DefaultLease, "the holder stops before others may start")
					require.GreaterOrEqual(t, held, idem.DefaultLease-2*idem.DefaultGuard, "and not for nothing")
				case <-time.After(3 * idem.DefaultLease):
					require.False(t, tc.lost)
				}
				return 1, nil
			}) // no other call came: its outcome counts
			require.Equal(t, idem.Completed, r.state(t, key))
			require.Equal(t, tc.lost, len(r.events.take()) == 3, "Claimed, LeaseLost, Completed")
		})
	}
}

// The heartbeat finds that somebody else has the claim.
func TestHeartbeatFindsTheClaimTaken(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		v := must(t, r, key, func(ctx context.Context, _ int) (int, error) {
			r.clock.Advance(time.Hour)
			must(t, r.elsewhere(t), key, returns(77))
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
			return 1, nil
		})
		require.Equal(t, 77, v)
		require.Equal(t, []string{"claimed", "lease_lost", "lease_lost"}, r.events.take())
		require.Equal(t, 1, r.count(idemtest.Extend))
	})
}

// With a kill time the lease ends there, to the millisecond, and needs no renewal; the handler's context ends at the
// guard, with its deadline to read. Time left is measured by the process's clock: an engine's clock that is moved
// makes no deadline look past, or further away.
func TestGuardBeforeTheKillTime(t *testing.T) {
	for _, tc := range []struct{ kill, guard, ahead time.Duration }{
		{time.Minute, time.Second, 0}, {2 * time.Second, 500 * time.Millisecond, 0},
		{time.Minute + 300*time.Microsecond, time.Second, 0},
		{10 * time.Second, time.Second, time.Hour}, {10 * time.Second, time.Second, -time.Hour},
	} {
		testOn(t, fmt.Sprint(tc), safe, func(t *testing.T, r *rig, key idem.Key) {
			r.clock.Advance(tc.ahead)
			kill := time.Now().Add(tc.kill)
			refused(t, r.in(idem.WithKillTime(t.Context(), kill)), key, context.DeadlineExceeded,
				func(ctx context.Context, _ int) (int, error) {
					end, ok := ctx.Deadline()
					require.True(t, ok)
					require.WithinDuration(t, kill.Add(-tc.guard), end, time.Millisecond)
					lease := r.record(t, key).LeaseUntil
					require.False(t, lease.Before(kill.Add(tc.ahead)))
					require.Less(t, lease.Sub(kill.Add(tc.ahead)), time.Millisecond)
					require.Equal(t, lease, lease.Truncate(time.Millisecond))
					info, _ := idem.InfoOf(ctx)
					require.Equal(t, lease, info.LeaseUntil)
					<-ctx.Done()
					require.ErrorIs(t, context.Cause(ctx), idem.ErrOutOfTime)
					require.WithinDuration(t, kill.Add(-tc.guard), time.Now(), time.Millisecond)
					return 0, ctx.Err()
				})
			require.Equal(t, idem.Released, r.state(t, key))
			require.Zero(t, r.count(idemtest.Extend))
			ctx, cancel := context.WithTimeout(t.Context(), tc.kill)
			defer cancel()
			must(t, r.in(ctx), key, new(counter).run)
		})
	}
}

// A handler that ignores its context past the guard: if it is not repeatable the question is opened while the process
// can still write, and its own late outcome closes it; if it is repeatable, it is left to its lease.
func TestHandlerThatIgnoresItsContext(t *testing.T) {
	for _, op := range both {
		for _, end := range []struct {
			name  string
			after time.Duration // of a kill time in 10 s
			err   error
			safe  idem.State
			other idem.State // where it is not repeatable
		}{
			{"in time", 9800 * time.Millisecond, nil, idem.Completed, idem.Completed},
			{"after the kill time", 11 * time.Second, nil, idem.Completed, idem.Completed},
			{"not executed", 9800 * time.Millisecond, idem.NotExecuted(errPlain), idem.Released, idem.Released},
			{"failed", 9800 * time.Millisecond, idem.Permanent(errPlain), idem.Failed, idem.Failed},
			{"uncertain", 9800 * time.Millisecond, errPlain, idem.Released, idem.Unknown},
		} {
			testOn(t, op.Name+"/"+end.name, op, func(t *testing.T, r *rig, key idem.Key) {
				ended := false
				_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
					time.Sleep(9400 * time.Millisecond)
					require.Error(t, ctx.Err())
					require.Equal(t, idem.InProgress, r.state(t, key), "half of the guard is the handler's, to end well")
					time.Sleep(200 * time.Millisecond)
					if op.Repeat == idem.NotRepeatable {
						parked := r.record(t, key)
						require.Equal(t, idem.Unknown, parked.State)
						require.Equal(t, "timeout", parked.Failure.Type)
						require.NoError(t, idem.SetReference(ctx, "pay_1"), "that is what the question is answered with")
						rec := r.record(t, key)
						require.Equal(t, []any{idem.Unknown, "pay_1", parked.Due}, []any{rec.State, rec.Ref, rec.Due})
					} else {
						require.Equal(t, idem.InProgress, r.state(t, key))
					}
					time.Sleep(end.after - 9600*time.Millisecond)
					ended = true
					return 1, end.err
				})
				require.True(t, ended, "the wrapper returns only when the handler has")
				require.Equal(t, idem.Unmark(end.err), err)
				require.Equal(t, under(op, end.safe, end.other), r.state(t, key))
			})
		}
	}
}

// The park from the side may come after the outcome, or not at all: the outcome stands.
func TestParkFromTheSideComesLate(t *testing.T) {
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		var net held
		r.faults.Next(idemtest.Finish, net.hold(false))
		must(t, r.inLambda(), key, lasts(9700*time.Millisecond))
		synctest.Wait()
		require.Len(t, net.calls, 1)
		done := r.record(t, key)
		require.Equal(t, idem.Completed, done.State)
		require.Error(t, net.calls[0].Do(t.Context()))
		require.Equal(t, done, r.record(t, key))
	})
}

// A store in a black hole after the handler: the result is there within the time that is left, before the kill.
func TestFinishKeepsWithinTheKillTime(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Next(idemtest.Finish, idemtest.BlackHole)
		start := time.Now()
		res := mustRun(t, r.inLambda(), key, lasts(9200*time.Millisecond))
		require.True(t, res.Outcome.Queued)
		require.Less(t, time.Since(start), 10*time.Second)
	})
}

// A process that is stopped past its lease changes nothing when it goes on, and its caller gets what the record of
// the other attempt says, not its own end. It never gets that nothing was executed.
func TestZombieChangesNothing(t *testing.T) {
	completing := elsewhere(func(t *testing.T, r *rig, key idem.Key) { must(t, r, key, returns(77)) })
	parking := elsewhere(func(t *testing.T, r *rig, key idem.Key) {
		uncertainly(t, r, key)
		refused(t, r, strictly.Key("t", "k"), idem.ErrOutcomeUnknown, fails(errPlain))
	})
	flight := &idem.InFlightError{}
	for name, tc := range map[string]struct {
		meanwhile play
		want      any
		value     int
	}{
		"completed": {completing, nil, 77},
		"running":   {killed, []any{idem.ErrLeaseLost, &flight}, 0},
		"unknown":   {parking, []any{idem.ErrOutcomeUnknown}, 0},
		"completed, and not to be read": {all(completing, faulty("Result", idemtest.LoseReply)),
			[]any{idem.ErrInFlight, idem.ErrLeaseLost}, 0},
	} {
		for how, end := range map[string]error{"completes": nil, "fails": idem.Permanent(errPlain),
			"releases": idem.NotExecuted(errPlain), "parks": errPlain} {
			testOn(t, name+"/"+how, safe, func(t *testing.T, r *rig, key idem.Key) {
				var theirs *idem.Record
				res, err := idem.Run(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
					r.clock.Advance(time.Hour)
					tc.meanwhile(t, r, key)
					theirs = r.record(t, key)
					return 1, end
				})
				expect(t, tc.want, err)
				require.NotErrorIs(t, err, errPlain)
				require.NotErrorIs(t, err, idem.ErrStoreUnavailable)
				if name == "running" {
					require.Equal(t, 2, flight.Attempt)
					require.Positive(t, flight.LeaseLeft)
				}
				require.Equal(t, tc.value, res.Value)
				require.Equal(t, tc.value != 0, res.Outcome.Replayed)
				require.False(t, res.Outcome.Executed, "its own result does not count")
				require.Empty(t, res.Outcome.AttemptState)
				require.Nil(t, res.Outcome.Failure)
				require.Equal(t, theirs, r.record(t, key))
			})
		}
	}
}

// parkedByAnother runs a handler whose claim another process parks, because their clocks are apart.
func parkedByAnother(t *testing.T, r *rig, key idem.Key, handler func(ctx context.Context)) (int, error) {
	return idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
		r.clock.Advance(time.Minute)
		refused(t, r.elsewhere(t), key, idem.ErrOutcomeUnknown, new(counter).run)
		handler(ctx)
		return 1, ctx.Err()
	})
}

// While a parked attempt still runs no other one does: its lease says so. It stops once its record was resolved.
func TestAParkedAttemptRunsUntilItIsResolved(t *testing.T) {
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		_, err := parkedByAnother(t, r, key, func(ctx context.Context) {
			for range 10 {
				time.Sleep(idem.DefaultLease / 2)
				require.ErrorIs(t, r.resolve(t, key.ID(), reconcile.Resolution{To: idem.Released}), reconcile.ErrTooEarly)
				require.Zero(t, r.record(t, key).ExpiresAt)
			}
			require.NoError(t, ctx.Err())
			require.NoError(t, r.resolve(t, key.ID(), reconcile.Resolution{To: idem.Completed}))
			time.Sleep(idem.DefaultLease / 2)
			require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
		})
		require.ErrorIs(t, err, idem.ErrOutcomeUnavailable, "it completed, as the resolution says")
	})
}

// One that cannot say so stops before the operation may run again.
func TestAParkedAttemptThatCannotRenewItsLeaseStops(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"refused": idemtest.Refuse, "black hole": idemtest.BlackHole} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			got, err := parkedByAnother(t, r, key, func(ctx context.Context) {
				time.Sleep(idem.DefaultLease / 2) // renewed once
				r.faults.Always(fault, idemtest.Extend)
				time.Sleep(idem.DefaultLease)
				require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
				require.NoError(t, r.resolve(t, key.ID(), reconcile.Resolution{To: idem.Released}))
				must(t, r.elsewhere(t), key, returns(2))
			})
			require.NoError(t, err)
			require.Equal(t, 2, got, "the recorded outcome, not its own")
		})
	}
}

// What no call takes over is parked, but for a repeatable attempt after an at-most-once step that ended
// in time; parked or not, its lease says that it still runs.
func TestAnOverrunThatIsParkedIsRenewed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		op    idem.Operation
		fault idemtest.Fault
		state idem.State
	}{
		{"parked", unsafe, idemtest.Pass, idem.Unknown},
		{"its reply lost", unsafe, idemtest.LoseReply, idem.Unknown},
		{"not parked", unsafe, idemtest.Refuse, idem.InProgress},
		{"after a step", safe, idemtest.Pass, idem.InProgress},
		{"in a step", safe, idemtest.Pass, idem.Unknown},
	} {
		testOn(t, tc.name, tc.op, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Next(idemtest.Finish, tc.fault)
			must(t, r.in(shortened(t, true)), key, func(ctx context.Context, _ int) (int, error) {
				overrun := func(context.Context) (int, error) {
					time.Sleep(9 * time.Second)
					refused(t, r.elsewhere(t), key, nil, new(counter).run)
					require.Equal(t, tc.state, r.state(t, key))
					require.True(t, r.record(t, key).LeaseUntil.After(r.clock.Now()))
					return 1, nil
				}
				switch tc.name {
				case "in a step":
					return idem.Step(ctx, "charge", overrun, onceOnly)
				case "after a step":
					_, err := idem.Step(ctx, "charge", one, onceOnly)
					require.NoError(t, err)
				}
				return overrun(ctx)
			})
			require.Equal(t, 1, r.count(idemtest.Extend))
			require.Equal(t, idem.Completed, r.state(t, key))
			require.NotContains(t, r.events.take(), "lease_lost")
		})
	}
}

// A takeover in the instants before the renewal stands, and the overrun learns of it.
func TestAnOverrunThatWasTakenOver(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Always(idemtest.Refuse, idemtest.Extend) // for longer than the margin
		must(t, r.in(shortened(t, true)), key, func(context.Context, int) (int, error) {
			time.Sleep(6 * time.Second)
			require.Equal(t, 2, must(t, r.elsewhere(t), key, returns(2)))
			return 0, errors.New("late")
		}) // the other one's outcome
		require.Equal(t, 2, r.record(t, key).Attempt)
	})
}

// An operation within an operation has the same kill time, not the shorter context's: its lease is no shorter, and
// its handler loses no second guard. The first kill time that was said counts: whose who knows the invocation's.
func TestNestedDeadlinesDoNotDrift(t *testing.T) {
	t.Setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")
	for name, explicit := range map[string]bool{"Lambda's context": false, "a wrapper's": true} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			kill, _ := ctx.Deadline()
			if explicit {
				ctx = idem.WithKillTime(idem.WithKillTime(ctx, kill), time.Now().Add(time.Second))
			}
			var nest func(context.Context, int) (int, error)
			nest = func(ctx context.Context, depth int) (int, error) {
				info, _ := idem.InfoOf(ctx)
				require.WithinDuration(t, kill, info.LeaseUntil, time.Millisecond)
				end, _ := ctx.Deadline()
				require.WithinDuration(t, kill.Add(-idem.DefaultGuard), end, time.Millisecond)
				if depth == 0 {
					return 0, nil
				}
				ctx, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				return idem.Do(ctx, r.engine, safe.Key("t", string(rune('a'+depth))), depth-1, nest)
			}
			_, err := idem.Do(ctx, r.engine, safe.Key("t", "outer"), 4, nest)
			require.NoError(t, err)
		})
	}
}

// A claim that is late, but in time, is renewed before it is over.
func TestALateClaimIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &idem.Options{Lease: 6 * time.Second, Margin: time.Millisecond, ClaimBudget: 20 * time.Second})
		key := unsafe.Key("t", "k")
		r.faults.Next(idemtest.Acquire, func(ctx context.Context, c *idemtest.Call) error {
			defer time.Sleep(4 * time.Second)
			return c.Do(ctx)
		})
		must(t, r, key, func(ctx context.Context, _ int) (int, error) {
			for range 20 {
				require.False(t, r.record(t, key).Lapsed(r.clock.Now(), 0), "the lease is never over")
				time.Sleep(500 * time.Millisecond)
			}
			return 1, ctx.Err()
		})
	})
}

// Schedules by hand: interleavings of two processes, each as it is dangerous.
