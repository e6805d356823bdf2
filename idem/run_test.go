package idem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

type codedError struct{ code string }

func (e *codedError) Error() string     { return "coded " + e.code }
func (e *codedError) ErrorCode() string { return e.code }

// Every way in which an attempt can end, under both declarations: the record's
// state, and what the same call gets afterwards.
func TestEveryEndUnderEveryDeclaration(t *testing.T) {
	coded := &codedError{"declined"}
	says := func(c idem.Class) func(context.Context, any, error) idem.Class {
		return func(context.Context, any, error) idem.Class { return c }
	}
	ends := func(v int, err error) func(context.Context, int) (int, error) {
		return func(context.Context, int) (int, error) { return v, err }
	}
	for _, tc := range []struct {
		name     string
		handler  func(context.Context, int) (int, error)
		classify func(context.Context, any, error) idem.Class
		safe     idem.State // the repeatable operation's record
		unsafe   idem.State
	}{
		{"result", ends(7, nil), nil, idem.Completed, idem.Completed},
		{"plain error", ends(0, errPlain), nil, idem.Released, idem.Unknown},
		{"cancelled", ends(0, context.Canceled), nil, idem.Released, idem.Unknown},
		{"not executed", ends(0, idem.NotExecuted(errPlain)), nil, idem.Released, idem.Released},
		{"not executed, wrapped", ends(0, fmt.Errorf("calling: %w", idem.NotExecuted(errPlain))), nil,
			idem.Released, idem.Released},
		{"permanent", ends(0, idem.Permanent(coded)), nil, idem.Failed, idem.Failed},
		{"permanent, not executed", ends(0, idem.Permanent(idem.NotExecuted(coded))), nil, idem.Failed, idem.Failed},
		{"not executed, with a result", func(ctx context.Context, _ int) (int, error) {
			idem.SetNotExecuted(ctx)
			return 7, nil
		}, nil, idem.Released, idem.Released},
		{"not executed, with an error", func(ctx context.Context, _ int) (int, error) {
			idem.SetNotExecuted(ctx)
			return 7, errPlain
		}, nil, idem.Released, idem.Released},

		{"hook: default", ends(0, errPlain), says(idem.ClassDefault), idem.Released, idem.Unknown},
		{"hook: nonsense", ends(7, nil), says(99), idem.Completed, idem.Completed},
		{"hook: completed", ends(7, nil), says(idem.ClassCompleted), idem.Completed, idem.Completed},
		{"hook: completed although an error", ends(7, errPlain), says(idem.ClassCompleted),
			idem.Completed, idem.Completed},
		{"hook: failed", ends(0, coded), says(idem.ClassFailed), idem.Failed, idem.Failed},
		{"hook: failed without an error", ends(7, nil), says(idem.ClassFailed), idem.Completed, idem.Completed},
		{"hook: not executed", ends(7, nil), says(idem.ClassNotExecuted), idem.Released, idem.Released},
		{"hook: uncertain", ends(7, nil), says(idem.ClassUncertain), idem.Released, idem.Unknown},
		{"hook: beats the mark", ends(0, idem.Permanent(errPlain)), says(idem.ClassNotExecuted),
			idem.Released, idem.Released},
	} {
		for _, op := range append(both, atomically) {
			op.Classify = tc.classify
			testOn(t, fmt.Sprint(tc.name, "/", op.Name, op.Mode), op, func(t *testing.T, r *rig, key idem.Key) {
				attempt := under(op, tc.safe, tc.unsafe)
				want := attempt
				if op.Mode == idem.Atomic && want == idem.Released {
					want = idem.Absent // nothing is written
				}
				runs := 0
				var own error
				handler := func(ctx context.Context, n int) (v int, err error) {
					runs++
					v, own = tc.handler(ctx, n)
					return v, own
				}
				live, liveErr := idem.Run(t.Context(), r.engine, key, 1, handler)
				require.Equal(t, want, live.Outcome.RecordState)
				require.Equal(t, attempt, live.Outcome.AttemptState)
				require.Equal(t, 1, live.Outcome.Attempt)
				require.True(t, live.Outcome.Executed)
				if want != idem.Completed {
					require.True(t, liveErr == idem.Unmark(own), "the handler's own error, without a mark around it: %v", liveErr)
				}
				require.Equal(t, want, r.state(t, key))
				if rec := r.record(t, key); rec != nil {
					require.Equal(t, want == idem.Unknown, rec.ExpiresAt.IsZero(), "only an open question never expires")
				}

				next, err := idem.Run(t.Context(), r.engine, key, 1, handler)
				switch want {
				case idem.Completed:
					require.NoError(t, liveErr)
					require.NoError(t, err)
					require.Equal(t, 7, live.Value)
					require.Equal(t, 7, next.Value)
					require.True(t, next.Outcome.Replayed)
					require.False(t, next.Outcome.Executed)
					require.Empty(t, next.Outcome.AttemptState, "the handler did not run")
					require.Equal(t, 1, runs)
				case idem.Failed:
					recorded := errorAs[*idem.RecordedError](t, err)
					require.Equal(t, idem.Failure{Message: "coded declined", Type: "codedError", Code: "declined"}, recorded.Failure)
					require.Equal(t, recorded.Failure, *live.Outcome.Failure, "live as on replay")
					require.Equal(t, 1, runs)
				case idem.Released:
					require.Equal(t, 2, runs)
					require.Equal(t, 2, r.record(t, key).Attempt)
				case idem.Absent:
					require.Equal(t, 2, runs)
				case idem.Unknown:
					require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
					require.Equal(t, 1, runs)
				}
			})
		}
	}
}

// under is what holds of the operation if it is repeatable, or if it is not.
func under[T any](op idem.Operation, safe, unsafe T) T {
	if op.Repeat == idem.Repeatable {
		return safe
	}
	return unsafe
}

// nilError is an error that panics when it is asked for its text.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// Whatever goes wrong in the handler, in its error or in the hook goes on as it would without the
// engine, and leaves an attempt whose end is unknown, not one that is forgotten.
func TestPanicGoesOnAndIsRecorded(t *testing.T) {
	value := &struct{ int }{7}
	for name, tc := range map[string]struct {
		handler func(context.Context, int) (int, error)
		hook    func(context.Context, any, error) idem.Class
		want    answered
		failure string
	}{
		"panic": {func(context.Context, int) (int, error) { panic(value) }, nil, answered{thrown: value}, "panic"},
		"exit": {func(context.Context, int) (int, error) { runtime.Goexit(); return 0, nil }, nil,
			answered{exited: true}, "panic"},
		"typed nil error": {fails((*nilError)(nil)), nil, answered{value: 0, err: (*nilError)(nil)}, "nilError"},
		"hook": {new(counter).run, func(context.Context, any, error) idem.Class { panic("hook") },
			answered{thrown: "hook"}, "panic"},
		"hook over a refusal": {func(ctx context.Context, n int) (int, error) {
			_, err := pay(effect{n: 1, refuse: errPlain}, nil)(ctx, n)
			return n, err
		}, func(_ context.Context, _ any, err error) idem.Class {
			if err != nil {
				panic("boom")
			}
			return idem.ClassDefault
		}, answered{thrown: "boom"}, "panic"},
	} {
		for _, op := range append(both, atomically) {
			op.Classify = tc.hook
			testOn(t, fmt.Sprint(name, "/", op.Name, op.Mode), op, func(t *testing.T, r *rig, key idem.Key) {
				var ctx context.Context
				got := seen(func() (any, error) {
					return idem.Do(t.Context(), r.engine, key, 1, func(own context.Context, n int) (int, error) {
						ctx = own
						return tc.handler(ctx, n)
					})
				})
				got.took = 0
				require.Equal(t, tc.want, got)
				require.Error(t, ctx.Err())
				if op.Mode == idem.Atomic {
					require.Equal(t, idem.Absent, r.state(t, key))
					return
				}
				rec := r.record(t, key)
				require.Equal(t, under(op, idem.Released, idem.Unknown), rec.State)
				require.Equal(t, tc.failure, rec.Failure.Type)
				require.True(t, rec.Uncertain)
				require.Equal(t, []string{"claimed", "executed", under(op, "released", "parked")}, r.events.names)
			})
		}
	}
}

// A client that goes away changes nothing about the attempt.
func TestClientDisconnects(t *testing.T) {
	left := errors.New("client left")
	for name, tc := range map[string]struct {
		claim func(ctx context.Context, c *idemtest.Call, leave func()) error // nil: it leaves before
		err   error
		state idem.State
	}{
		"before the claim": {nil, left, idem.Absent},
		"while the claim is sent": {func(ctx context.Context, c *idemtest.Call, leave func()) error {
			require.NoError(t, c.Do(ctx))
			leave()
			return c.Lost()
		}, idem.ErrStoreUnavailable, idem.Released},
		"when the claim has come": {func(ctx context.Context, c *idemtest.Call, leave func()) error {
			defer leave()
			return c.Do(ctx)
		}, left, idem.Released},
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			ctx, cancel := context.WithCancelCause(t.Context())
			leave := func() { cancel(left) }
			if tc.claim == nil {
				leave()
			} else {
				r.faults.Next(idemtest.Acquire, func(ctx context.Context, c *idemtest.Call) error {
					return tc.claim(ctx, c, leave)
				})
			}
			refused(t, r.in(ctx), key, tc.err, fails(errPlain)) // nothing runs
			require.Equal(t, tc.claim == nil, len(r.faults.Calls()) == 0)
			require.Equal(t, tc.state, r.state(t, key), "it is taken back")
			require.True(t, tc.state == idem.Absent || !r.record(t, key).Uncertain)
		})
	}
	testOn(t, "while the handler runs", unsafe, func(t *testing.T, r *rig, key idem.Key) {
		ctx, cancel := context.WithCancelCause(t.Context())
		v := must(t, r.in(ctx), key, func(ctx context.Context, n int) (int, error) {
			cancel(left)
			require.ErrorIs(t, context.Cause(ctx), left, "the handler may know")
			return n, nil
		})
		require.Equal(t, 1, v)
		require.Equal(t, idem.Completed, r.state(t, key))
	})
}

// A handler without time gets no claim, and what is recorded needs none of it; a claim that came too late is released,
// also where it has used up the lease.
func TestTimeLeft(t *testing.T) {
	const ms = time.Millisecond
	op := safe
	op.MinTime = 2 * time.Second
	killedIn := func(left time.Duration) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context { return idem.WithKillTime(t.Context(), time.Now().Add(left)) }
	}
	deadlineIn := func(left time.Duration) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			t.Cleanup(cancel)
			return ctx
		}
	}
	claims := func(took time.Duration) idemtest.Fault { // by a store that does not heed its context
		return func(ctx context.Context, c *idemtest.Call) error {
			time.Sleep(took)
			return c.Do(context.WithoutCancel(ctx))
		}
	}
	answers := func(took time.Duration) idemtest.Fault {
		return func(ctx context.Context, c *idemtest.Call) error {
			defer time.Sleep(took)
			return c.Do(ctx)
		}
	}
	opts := func(o idem.Options) *idem.Options { return &o }
	patient := opts(idem.Options{ClaimBudget: time.Hour})
	for _, tc := range []struct {
		name  string
		opts  *idem.Options
		ctx   func(*testing.T) context.Context
		fault play
		err   error
		calls []idemtest.Method
	}{
		{"past", nil, killedIn(-time.Second), nothing, idem.ErrOutOfTime, nil},
		{"zero", nil, killedIn(0), nothing, idem.ErrOutOfTime, nil},
		{"a kill time of zero is no kill time to ignore", nil, func(t *testing.T) context.Context {
			return idem.WithKillTime(t.Context(), time.Time{})
		}, nothing, idem.ErrOutOfTime, nil},
		{"no more than the guard", nil, killedIn(time.Second), nothing, idem.ErrOutOfTime, m("Get")},
		{"too little", nil, killedIn(2600 * ms), nothing, idem.ErrOutOfTime, m("Get")},
		{"too little, and none to look", nil, killedIn(2600 * ms), always(idemtest.BlackHole), idem.ErrOutOfTime, m("Get")},
		{"too little, and unreadable", nil, killedIn(2600 * ms), always(idemtest.Unreadable), idem.ErrRecordUnreadable,
			m("Get", "Get")},
		{"enough", nil, killedIn(2700 * ms), nothing, nil, m("Acquire", "Finish")},
		{"too late for the kill time", nil, killedIn(2900 * ms), faulty("Acquire", slow(200*ms, idemtest.Pass)),
			idem.ErrOutOfTime, m("Acquire", "Finish")},
		{"too late for the deadline", nil, deadlineIn(2100 * ms), faulty("Acquire", slow(200*ms, idemtest.Pass)),
			idem.ErrOutOfTime, m("Acquire", "Finish")},
		{"too late for the guard", opts(idem.Options{Guard: 3900 * ms}), killedIn(4 * time.Second),
			faulty("Acquire", claims(3100*ms)), idem.ErrOutOfTime, m("Acquire", "Finish")},
		{"at the end of the lease", patient, (*testing.T).Context,
			faulty("Acquire", answers(idem.DefaultLease-10*ms)), idem.ErrLeaseLost, m("Acquire", "Finish")},
		{"after the lease", patient, (*testing.T).Context,
			faulty("Acquire", answers(idem.DefaultLease+10*time.Second)), idem.ErrOutOfTime, m("Acquire", "Finish")},
	} {
		for _, repeat := range []idem.Repeat{idem.NotRepeatable, idem.Repeatable} {
			op.Repeat = repeat
			bubble(t, fmt.Sprint(tc.name, "/", repeat), func(t *testing.T) {
				r, key := newRig(t, tc.opts), op.Key("t", "k")
				tc.fault(t, r, key)
				start := time.Now()
				_, err := idem.Do(tc.ctx(t), r.engine, key, 1, r.c.run)
				expect(t, tc.err, err)
				require.Equal(t, tc.calls, r.faults.Calls())
				require.Equal(t, tc.err == nil, r.c.count() == 1)
				if tc.err == nil {
					return
				}
				if len(tc.calls) == 0 || tc.calls[0] == idemtest.Get {
					require.Less(t, time.Since(start), time.Second)
					require.Nil(t, r.record(t, key))
				} else {
					require.Equal(t, idem.Released, r.state(t, key), "nothing was executed")
					require.False(t, r.record(t, key).Uncertain)
				}
				if tc.err == idem.ErrOutOfTime {
					require.Contains(t, r.events.take(), "out_of_time")
				}
				require.Equal(t, 1, must(t, r.elsewhere(t), key, r.c.run))
				for _, left := range []time.Duration{2600 * ms, 100 * ms} {
					r.faults.Heal()
					require.Equal(t, 1, must(t, r.in(killedIn(left)(t)), key, r.c.run), "what is recorded needs no time")
					_, err := idem.Do(killedIn(left)(t), r.engine, key, 2, r.c.run)
					require.ErrorIs(t, err, idem.ErrKeyReused)
				}
			})
		}
	}
}

// A finish that is answered without the conflicting record looks for itself, once.
func TestFinishLooksAgain(t *testing.T) {
	held := func(f idemtest.Fault) func(ctx context.Context, c *idemtest.Call) error {
		return func(ctx context.Context, c *idemtest.Call) error { _ = c.Do(ctx); return f(ctx, c) }
	}
	for name, fault := range map[string]idemtest.Fault{"conflict without the record": idemtest.BareConflict,
		"unreadable": idemtest.Unreadable} {
		for end, tc := range map[string]struct {
			faults func(*idemtest.Faults)
			queued bool
			after  idem.State // once what waits was written
		}{
			"landed":     {func(f *idemtest.Faults) { f.Next(idemtest.Finish, held(fault)) }, false, idem.Completed},
			"not landed": {func(f *idemtest.Faults) { f.Next(idemtest.Finish, fault) }, false, idem.Completed},
			"no answer":  {func(f *idemtest.Faults) { f.Always(fault, idemtest.Finish) }, true, idem.InProgress},
			"nor read": {func(f *idemtest.Faults) {
				f.Next(idemtest.Finish, fault)
				f.Next(idemtest.Get, idemtest.LoseReply)
			}, true, idem.Completed},
		} {
			testOn(t, name+", "+end, unsafe, func(t *testing.T, r *rig, key idem.Key) {
				tc.faults(r.faults)
				res := mustRun(t, r.inLambda(), key, new(counter).run)
				require.Equal(t, tc.queued, res.Outcome.Queued)
				require.Equal(t, !tc.queued, res.Outcome.RecordState == idem.Completed)
				if end == "landed" {
					require.Equal(t, m("Acquire", "Finish", "Get"), r.faults.Calls())
				}
				if tc.after == idem.Completed {
					require.NoError(t, r.engine.Flush(t.Context()))
				}
				require.Equal(t, tc.after, r.state(t, key))
			})
		}
		t.Run(name+", deleted", func(t *testing.T) {
			r := newRig(t, nil)
			r.faults.Next(idemtest.Finish, fault)
			key := unsafe.Key("t", "k")
			err := refused(t, r, key, idem.ErrLeaseLost, func(context.Context, int) (int, error) {
				r.mem.Delete(key.ID())
				return 1, nil
			})
			require.ErrorIs(t, err, idem.ErrInFlight)
		})
	}
	testOn(t, "always unreadable fails closed", unsafe, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Always(idemtest.Unreadable, idemtest.Finish, idemtest.Get)
		err := refused(t, r, key, idem.ErrRecordUnreadable, new(counter).run)
		require.ErrorIs(t, err, idem.ErrLeaseLost)
	})
}

// A release whose reply is lost, and whose record a concurrent duplicate claims at
// once: the store's retry finds that claim, and knows that the release had landed.
func TestAReleaseThatWasClaimedOverHasLanded(t *testing.T) {
	for name, end := range map[string]error{"uncertain": errPlain, "not executed": idem.NotExecuted(errPlain)} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			w := r.elsewhere(t)
			r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
				require.NoError(t, c.Do(ctx))
				must(t, w, key, func(context.Context, int) (int, error) {
					require.NoError(t, c.Do(ctx), "while the other one runs")
					return 9, nil
				})
				return c.Do(ctx)
			})
			errs(t, r, key, fails(end))
			require.Equal(t, []string{"claimed", "released"}, r.events.take())
			require.Equal(t, idem.Completed, r.state(t, key))
		})
	}
}
