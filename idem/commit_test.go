package idem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// effect is a unit of work that commits in memory.
type effect struct {
	n         int
	refuse    error
	ambiguous bool // an earlier try of the refused write may still arrive
	sealed    bool
	size      int
}

func (e *effect) Seal() bool {
	e.sealed = true
	return e.n > 0
}

func (e *effect) Size() int { return e.size }

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

func TestUnitCommitsWithAResultAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		e     effect
		err   error
		total int
	}{
		"result":       {effect{n: 1}, nil, 1},
		"empty":        {effect{}, nil, 0},
		"error":        {effect{n: 1}, errPlain, 0},
		"permanent":    {effect{n: 1}, idem.Permanent(errPlain), 0},
		"not executed": {effect{n: 1}, idem.NotExecuted(errPlain), 0},
	} {
		for _, op := range []idem.Operation{safe, atomically} {
			t.Run(fmt.Sprintf("%s/mode %d", name, op.Mode), func(t *testing.T) {
				r, calls := newRig(t, nil), m("Acquire", "Finish")
				if op.Mode == idem.Atomic {
					if calls[0] = "Get"; name == "error" || name == "not executed" {
						calls = calls[:1] // nothing is written
					}
				}
				_, err := idem.Do(t.Context(), r.engine, op.Key("t", "k"), 1, pay(tc.e, tc.err))
				require.Equal(t, idem.Unmark(tc.err), err)
				require.Equal(t, tc.total, r.committed())
				require.Equal(t, calls, r.faults.Calls())
			})
		}
	}
}

// Requests or replies are lost of a commit, of its fence and of the read after that, in both modes. The
// answer that nothing was committed stays true for ever.
func TestCommitInDoubt(t *testing.T) {
	lost, reply := idemtest.LoseRequest, idemtest.LoseReply
	for _, tc := range []struct {
		name               string
		commit, fence, get idemtest.Fault // a nil commit is held, and delivered at the end
		ok, maybe          bool
		again              bool // the fence of a commit that has seen no record is sent again at once
	}{
		{name: "reply lost", commit: reply, ok: true},
		{name: "request lost"},
		{name: "refused", commit: idemtest.Refuse},
		{name: "reply lost, fence's request", commit: reply, fence: lost, ok: true},
		{name: "reply lost, fence's reply", commit: reply, fence: reply, ok: true},
		{name: "request lost, fence's reply", fence: reply},
		{name: "request lost, fence's request", fence: lost, maybe: true},
		{name: "request lost, fence and read", fence: lost, get: lost, maybe: true},
		{name: "reply lost, fence and read", commit: reply, fence: lost, get: lost, maybe: true},
		{name: "request lost, fence unreadable", fence: idemtest.Unreadable, maybe: true},
		{name: "request lost, fence's conflict without a record", fence: idemtest.BareConflict, maybe: true,
			again: true},
	} {
		for _, op := range append(both, atomically) {
			for _, expired := range []bool{false, true} {
				testOn(t, fmt.Sprintf("%s/%s %d/over an expired record %v", tc.name, op.Name, op.Mode, expired), op,
					func(t *testing.T, r *rig, key idem.Key) {
						atomic := op.Mode == idem.Atomic
						if expired {
							leftExpired(t, r, key)
							r.events.take()
						}
						held, fence := (*idemtest.Call)(nil), idemtest.Finish
						maybe := tc.maybe && !(atomic && tc.again && !expired)
						commit, landed := tc.commit, tc.commit != nil && tc.name != "refused"
						if commit == nil {
							commit = idemtest.Hold(&held)
						}
						if atomic {
							r.faults.Next(idemtest.Get, idemtest.Pass) // before the handler
							fence = idemtest.Withdraw
						}
						r.faults.Next(idemtest.Finish, commit)
						r.faults.Next(fence, tc.fence)
						r.faults.Next(idemtest.Get, tc.get)
						res, err := idem.Run(inLambda(t.Context()), r.engine, key, 1, pay(effect{n: 1}, nil))
						if tc.ok {
							require.NoError(t, err)
							require.Equal(t, "paid", res.Value)
							require.False(t, res.Outcome.Queued || res.Outcome.Replayed)
						} else {
							failed := errorAs[*idem.CommitError](t, err)
							require.ErrorIs(t, err, idem.ErrNotCommitted)
							require.Equal(t, maybe, failed.Ambiguous)
							require.Equal(t, maybe, strings.Contains(err.Error(), "may have been committed"))
							require.NotErrorIs(t, err, idem.ErrStoreUnavailable, "something was executed")
							require.Zero(t, res.Outcome)
							unknown := op.Repeat == idem.NotRepeatable && !maybe
							require.Equal(t, unknown, errors.Is(err, idem.ErrOutcomeUnknown))
						}
						require.Equal(t, atomic && maybe, slices.Contains(r.events.take(), "outcome_queued"),
							"it is never written later, but what fences it")
						if atomic && !expired {
							want := idem.Released
							switch {
							case landed:
								want = idem.Completed
							case maybe, tc.name == "refused":
								want = idem.Absent
							}
							require.Equal(t, want, r.state(t, key))
						}
						require.NoError(t, r.engine.Flush(t.Context()))
						if held != nil {
							landed = maybe && !atomic
							require.Equal(t, landed, held.Do(t.Context()) == nil)
							require.Equal(t, landed, r.state(t, key) == idem.Completed)
						}
						require.Equal(t, landed, r.committed() == 1)

						// The same call finds out.
						r.faults.Heal()
						r.clock.Advance(time.Hour)
						next, err := idem.Run(t.Context(), r.engine, key, 1, pay(effect{n: 1}, nil))
						if !landed && op.Repeat == idem.NotRepeatable {
							require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
							require.Zero(t, r.committed())
							return
						}
						require.NoError(t, err)
						require.Equal(t, landed, next.Outcome.Replayed)
						require.Equal(t, 1, r.committed())
					})
			}
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

// An attempt that was taken over commits nothing, and its caller gets what is
// recorded.
func TestCommitAfterTheClaimIsLost(t *testing.T) {
	r, key := rigOn(t, safe)
	res := mustRun(t, r.inLambda(), key, func(ctx context.Context, n int) (string, error) {
		r.clock.Advance(time.Hour)
		must(t, r.elsewhere(t), key, func(context.Context, int) (string, error) { return "theirs", nil })
		return pay(effect{n: 1}, nil)(ctx, n)
	})
	require.Equal(t, "theirs", res.Value)
	require.True(t, res.Outcome.Replayed)
	require.Zero(t, r.committed())
}

// A handler that panics drops its unit.
func TestPanicDropsTheUnit(t *testing.T) {
	r, key := rigOn(t, safe)
	e := &effect{n: 1}
	require.Panics(t, func() {
		_, _ = idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, _ int) (string, error) {
			_, err := idem.UnitOf(ctx, func() idem.Unit { return e })
			require.NoError(t, err)
			panic("boom")
		})
	})
	require.True(t, e.sealed)
	require.Zero(t, r.committed())
	require.Equal(t, idem.Released, r.state(t, key))
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
