package idem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// shortened is a context in Lambda, minutes before its kill time, whose deadline
// somebody has set earlier: the engine cannot tell it from Lambda's own.
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

// A deadline that is not the kill time ends the handler's context, and not its claim:
// while the handler runs nobody else does, and its outcome is recorded with all its
// time.
func TestAShortenedDeadlineKeepsTheClaim(t *testing.T) {
	t.Setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")
	for name, explicit := range map[string]bool{"Lambda's context": false, "a wrapper's": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				key := safe.Key("t", "k")
				r.faults.Next(idemtest.Finish, slow(time.Second, idemtest.Pass))
				res, err := idem.Run(shortened(t, explicit), r.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
					lease := r.record(t, key).LeaseUntil
					<-ctx.Done()
					require.ErrorIs(t, context.Cause(ctx), idem.ErrOutOfTime)
					require.Less(t, r.clock.Now(), lease, "the handler may still be killed, and has its guard")
					for range 100 {
						time.Sleep(time.Second)
						_, err := idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, new(counter).run)
						require.ErrorIs(t, err, idem.ErrInFlight)
					}
					return 1, nil
				})
				require.NoError(t, err)
				require.False(t, res.Outcome.Queued)
				require.Equal(t, idem.Completed, r.state(t, key))
				require.LessOrEqual(t, r.count(idemtest.Extend), 12, "renewed as anywhere")
			})
		})
	}
}

// What ends in time is never renewed: it costs no call.
func TestAHandlerThatEndsInTimeIsNotRenewed(t *testing.T) {
	for _, op := range both {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			_, err := idem.Do(shortened(t, true), r.engine, op.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
				<-ctx.Done()
				return 1, nil
			})
			require.NoError(t, err)
			time.Sleep(time.Hour)
			require.Equal(t, []idemtest.Method{idemtest.Acquire, idemtest.Finish}, r.faults.Calls())
		})
	}
}

// What nobody takes over is parked; parked or not, its lease says that it still runs.
func TestAnOverrunThatIsParkedIsRenewed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault idemtest.Fault
		state idem.State
	}{
		{"parked", idemtest.Pass, idem.Unknown},
		{"its reply lost", idemtest.LoseReply, idem.Unknown},
		{"not parked", idemtest.Refuse, idem.InProgress},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				key := unsafe.Key("t", "k")
				r.faults.Next(idemtest.Finish, tc.fault)
				_, err := idem.Do(shortened(t, true), r.engine, key, 1, func(context.Context, int) (int, error) {
					time.Sleep(9 * time.Second)
					_, err := idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, new(counter).run)
					require.Error(t, err)
					require.Equal(t, tc.state, r.state(t, key))
					require.True(t, r.record(t, key).LeaseUntil.After(r.clock.Now()))
					return 1, nil
				})
				require.NoError(t, err)
				require.Equal(t, 1, r.count(idemtest.Extend))
				require.Equal(t, idem.Completed, r.state(t, key))
				require.NotContains(t, r.events.take(), "lease_lost")
			})
		})
	}
}

// An at-most-once step that ended in time leaves a repeatable attempt to its lease,
// which is renewed.
func TestAnOverrunAfterAStepIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		key := safe.Key("t", "k")
		_, err := idem.Do(shortened(t, true), r.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			require.NoError(t, err)
			time.Sleep(9 * time.Second)
			require.Equal(t, idem.InProgress, r.state(t, key))
			require.True(t, r.record(t, key).LeaseUntil.After(r.clock.Now()))
			return 1, nil
		})
		require.NoError(t, err)
		require.Equal(t, 1, r.count(idemtest.Extend))
	})
}

// A takeover in the instants before the renewal stands, and the overrun learns of it.
func TestAnOverrunThatWasTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		key := safe.Key("t", "k")
		r.faults.Always(idemtest.Refuse, idemtest.Extend) // for longer than the margin
		_, err := idem.Do(shortened(t, true), r.engine, key, 1, func(context.Context, int) (int, error) {
			time.Sleep(6 * time.Second)
			v, err := idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, func(context.Context, int) (int, error) { return 2, nil })
			require.NoError(t, err)
			require.Equal(t, 2, v)
			return 0, errors.New("late")
		})
		require.NoError(t, err, "the other one's outcome")
		require.Equal(t, 2, r.record(t, key).Attempt)
	})
}

// An operation within an operation has the same kill time, not the shorter context's:
// its lease is no shorter, and its handler loses no second guard.
func TestNestedDeadlinesDoNotDrift(t *testing.T) {
	t.Setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")
	for name, explicit := range map[string]bool{"Lambda's context": false, "a wrapper's": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				kill, _ := ctx.Deadline()
				if explicit {
					ctx = idem.WithKillTime(ctx, kill)
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
		})
	}
}

// The first kill time is whose who knows the invocation's.
func TestTheFirstKillTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		kill := time.Now().Add(time.Minute)
		ctx := idem.WithKillTime(idem.WithKillTime(t.Context(), kill), time.Now().Add(time.Second))
		_, err := idem.Do(ctx, r.engine, safe.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
			info, _ := idem.InfoOf(ctx)
			require.WithinDuration(t, kill, info.LeaseUntil, time.Millisecond)
			return 1, nil
		})
		require.NoError(t, err)
	})
}
