package idem_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// effect is a unit of work that commits in memory.
type effect struct {
	n         int
	refuse    error
	ambiguous bool // an earlier try of the refused write may still arrive
	sealed    bool
	dropped   bool
	size      int
}

func (e *effect) Seal() bool {
	e.sealed = true
	return e.n > 0
}

func (e *effect) Size() int { return e.size }

func (e *effect) Drop() { e.dropped = true }

func (e *effect) CommitInMemory(func(any) (bool, any)) error {
	if e.refuse != nil {
		return &protocol.RefusedError{Err: e.refuse, Ambiguous: e.ambiguous}
	}
	return nil
}

// committed adds up the effects that have committed.
func (r *rig) committed() (total int) {
	for _, u := range r.mem.Units() {
		total += u.(*effect).n
	}
	return total
}

// pay is a handler whose unit of work is e.
func pay(e effect, err error) func(context.Context, int) (string, error) {
	return func(ctx context.Context, _ int) (string, error) {
		u, uErr := idem.UnitOf(ctx, func() idem.Unit { return &e })
		if uErr != nil {
			return "", uErr
		}
		if again, _ := idem.UnitOf(ctx, func() idem.Unit { panic("made twice") }); again != u {
			return "", errors.New("another unit")
		}
		return "paid", err
	}
}

// A unit commits with a result alone. One that does not is sealed and dropped before the outcome is written: the write
// may need what it holds, such as the last connection.
func TestUnitCommitsWithAResultAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		n       int // zero for an empty unit
		end     error
		panics  bool
		commits bool
		unsaid  bool // in atomic mode nothing is written
	}{
		"result":       {n: 1, commits: true},
		"empty":        {},
		"error":        {n: 1, end: errPlain, unsaid: true},
		"permanent":    {n: 1, end: idem.Permanent(errPlain)},
		"not executed": {n: 1, end: idem.NotExecuted(errPlain), unsaid: true},
		"panic":        {n: 1, panics: true, unsaid: true},
	} {
		for _, op := range []idem.Operation{safe, atomically} {
			testOn(t, fmt.Sprintf("%s/mode %d", name, op.Mode), op, func(t *testing.T, r *rig, key idem.Key) {
				e, calls := &effect{n: tc.n}, m("Acquire", "Finish")
				if op.Mode == idem.Atomic {
					if calls[0] = "Get"; tc.unsaid {
						calls = calls[:1]
					}
				}
				r.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
					require.Equal(t, !tc.commits, e.dropped)
					return c.Do(ctx)
				}, idemtest.Finish)
				got := seen(func() (any, error) {
					return idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, _ int) (string, error) {
						unit := func() idem.Unit { return e }
						for range 2 { // it is made once
							u, err := idem.UnitOf(ctx, unit)
							require.NoError(t, err)
							require.Same(t, e, u)
							unit = func() idem.Unit { panic("made twice") }
						}
						if tc.panics {
							panic("over")
						}
						return "paid", tc.end
					})
				})
				require.Equal(t, idem.Unmark(tc.end), got.err)
				require.Equal(t, tc.panics, got.thrown != nil)
				require.True(t, e.sealed && e.dropped)
				require.Equal(t, tc.commits, r.committed() == 1)
				require.Equal(t, calls, r.faults.Calls())
			})
		}
	}
}

// A stricter call has parked the attempt while it ran: its commit closes the
// question; in doubt, the fence holds although the record stays where it is.
func TestCommitOfAParkedAttempt(t *testing.T) {
	for name, lose := range map[string]bool{"lands": false, "fenced": true} {
		t.Run(name, func(t *testing.T) {
			r, key := rigOn(t, safe)
			var held *idemtest.Call
			_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
				r.clock.Advance(time.Hour)
				refused(t, r.elsewhere(t), idem.Operation{Name: "safe"}.Key("t", "k"), idem.ErrOutcomeUnknown, new(counter).run)
				r.clock.Advance(-time.Hour)
				if lose {
					r.faults.Next(idemtest.Finish, idemtest.Hold(&held))
				}
				return pay(effect{n: 1}, nil)(ctx, n)
			})
			if !lose {
				require.NoError(t, err)
				require.Equal(t, idem.Completed, r.state(t, key))
				require.Equal(t, 1, r.committed())
				return
			}
			require.ErrorIs(t, err, idem.ErrNotCommitted)
			require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
			require.ErrorAs(t, held.Do(t.Context()), new(*protocol.ConflictError))
			require.Equal(t, idem.Unknown, r.state(t, key))
			require.Zero(t, r.committed())
		})
	}
}

// An attempt that was taken over commits nothing, and its caller gets what is recorded.
func TestCommitAfterTheClaimIsLost(t *testing.T) {
	r, key := rigOn(t, safe)
	res := mustRun(t, r.inLambda(), key, func(ctx context.Context, n int) (string, error) {
		r.clock.Advance(time.Hour)
		must(t, r.elsewhere(t), key, returns("theirs"))
		return pay(effect{n: 1}, nil)(ctx, n)
	})
	require.Equal(t, "theirs", res.Value)
	require.True(t, res.Outcome.Replayed)
	require.Zero(t, r.committed())
}

// A unit is asked for where it can commit.
func TestUnitOfNeedsAHandler(t *testing.T) {
	create := func() idem.Unit { return &effect{} }
	_, err := idem.UnitOf(t.Context(), create)
	require.ErrorAs(t, err, new(*idem.ConfigError))
	r := newRig(t, nil)
	var after context.Context
	must(t, r, safe.Key("t", "k"), func(ctx context.Context, _ int) (int, error) {
		after = ctx
		return idem.Step(ctx, "s", func(ctx context.Context) (int, error) {
			_, err := idem.UnitOf(ctx, create)
			require.ErrorAs(t, err, new(*idem.ConfigError))
			return 1, nil
		}, nil)
	})
	late, err := idem.UnitOf(after, create)
	require.NoError(t, err)
	require.True(t, late.(*effect).sealed)
}

// Steps have no claim to be recorded under in atomic mode.
func TestNoStepsInAtomicMode(t *testing.T) {
	r := newRig(t, nil)
	_, err := idem.Do(t.Context(), r.engine, atomically.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "s", func(context.Context) (int, error) { panic("ran") }, nil)
	})
	mistaken(t, err, "idem.Reserved")
}

// A handler that aborts commits only what it asks for afterwards, steps or not.
func TestUnitOfAHandlerThatAborts(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(context.Context)
		commits       bool
	}{
		"says nothing":         {},
		"said to be the end":   {after: idem.SetCompleted, commits: true},
		"the last word counts": {before: idem.SetCompleted},
	} {
		for _, steps := range []bool{false, true} {
			for _, op := range []idem.Operation{safe, charge, atomically} {
				if steps && op.Mode == idem.Atomic {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/mode %d/steps %v", name, op.Name, op.Mode, steps), func(t *testing.T) {
					r := newRig(t, nil)
					key, runs := op.Key("t", "k"), 0
					for range 2 {
						v := must(t, r, key, func(ctx context.Context, _ int) (string, error) {
							runs++
							if steps {
								_, err := tried{acts: trip()}.handler(r.e)(ctx, 1)
								require.NoError(t, err)
							}
							if c.before != nil {
								c.before(ctx)
							}
							require.NoError(t, idem.Abort(ctx, declinedError{}))
							if c.after != nil {
								c.after(ctx)
							}
							return pay(effect{n: 30}, nil)(ctx, 1)
						})
						require.Equal(t, "paid", v, "the answer is the handler's own")
					}
					require.Equal(t, 1, runs)
					require.Equal(t, c.commits, r.committed() == 30)
					if steps {
						require.Equal(t, []int{1, 1, 1}, r.e.all(tripUndone...))
					}
				})
			}
		}
	}
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

// Takeovers, and what takes them back, are of the life of the key that they have seen.

// A withdrawal of a takeover that comes after that life makes no record: its steps would be skipped in the next life.
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
