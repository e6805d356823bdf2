package idem_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

var failsOpen = idem.Operation{Name: "open", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}

// While the store is down the handler runs, with the key's own token, and nothing is recorded. A
// call after the outage runs it again.
func TestFailOpen(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"refused": idemtest.Refuse, "black hole": idemtest.BlackHole,
		"reply lost": idemtest.LoseReply} {
		testOn(t, name, failsOpen, func(t *testing.T, r *rig, key idem.Key) {
			var infos []idem.Info
			run := func() idem.Result[int] {
				res := mustRun(t, r, key, func(ctx context.Context, _ int) (int, error) {
					info, ok := idem.InfoOf(ctx)
					require.True(t, ok)
					require.Equal(t, info.Token, idem.Token(ctx))
					infos = append(infos, info)
					return 7, nil
				})
				require.Equal(t, 7, res.Value)
				return res
			}
			r.faults.Next(idemtest.Acquire, fault)
			out := run().Outcome
			reported := slices.DeleteFunc(r.events.take(), func(kind string) bool { return kind != "failed_open" })
			require.Len(t, reported, 1)
			require.Zero(t, r.count(idemtest.Finish))
			require.True(t, out.Executed && out.RecordedAt.IsZero() && out.ExpiresAt.IsZero())
			require.Equal(t, idem.Absent, out.RecordState)
			require.NoError(t, r.engine.Flush(t.Context()))
			if rec := r.record(t, key); rec != nil {
				require.Equal(t, idem.Released, rec.State, "the claim whose reply was lost")
			}

			require.Equal(t, idem.Completed, run().Outcome.RecordState)
			require.Len(t, infos, 2, "nothing was recorded, so it runs again")
			require.Equal(t, infos[0].Token, infos[1].Token)
			require.True(t, infos[0].WithoutClaim)
			require.False(t, infos[1].WithoutClaim)
			run()
			require.Len(t, infos, 2)

			errs(t, r, failsOpen.Key("t", "recorded"), fails(errPlain))
			r.faults.Next(idemtest.Acquire, fault)
			errs(t, r, failsOpen.Key("t", "another"), fails(errPlain))
			require.NoError(t, r.engine.Flush(t.Context()))
			if rec := r.record(t, failsOpen.Key("t", "another")); rec != nil {
				require.Equal(t, []any{idem.Released, false}, []any{rec.State, rec.Uncertain}, "its claim, taken back")
			}
		})
	}
}

// Steps run and are undone. One of at most once does not run where nothing can say that it did,
// and stops the operation.
func TestStepsOfACallThatFailsOpen(t *testing.T) {
	down := faulty(idemtest.Acquire, idemtest.Refuse)
	playAll(t,
		scenario{name: "undone", op: failsOpen, before: down, attempts: []tried{
			{acts: trip(), end: declines, want: declinedError{}, log: booked + undone},
		}},
		scenario{name: "not undone", op: failsOpen, before: down, attempts: []tried{
			{acts: trip(errPlain), end: declines, want: []any{declinedError{}, `compensation of step "hotel"`},
				log: booked + ", undo car, undo hotel"},
		}},
		scenario{name: "at most once", op: failsOpen, before: down, attempts: []tried{
			{acts: []act{{name: "ship"}, {name: "once", once: true}}, want: idem.ErrStoreUnavailable, log: "ship"},
		}},
	)
}

// A unit of work cannot commit in a store that is down: its caller learns that nothing did.
func TestAUnitOfACallThatFailsOpenIsNotCommitted(t *testing.T) {
	r, key := rigOn(t, failsOpen)
	r.faults.Next(idemtest.Acquire, idemtest.Refuse)
	_, err := idem.Do(t.Context(), r.engine, key, 1, pay(effect{n: 1}, nil))
	failed := errorAs[*idem.CommitError](t, err)
	require.False(t, failed.Ambiguous)
	require.Equal(t, idem.Absent, failed.State)
	require.Zero(t, r.committed())
	require.Nil(t, r.record(t, key))
}

// A retry during the outage, in the process that still holds the outcome in memory:
// it must not run again, since this process knows that it has run.
func TestFailOpenDoesNotRepeatWhatWaitsToBeWritten(t *testing.T) {
	inBubble(t, failsOpen, func(t *testing.T, r *rig, key idem.Key) {
		must(t, r.inLambda(), key, func(ctx context.Context, n int) (int, error) {
			r.faults.Always(idemtest.Refuse)
			return r.c.run(ctx, n)
		})
		refused(t, r.inLambda(), key, idem.ErrStoreUnavailable, r.c.run)
		require.Equal(t, 1, r.c.count())
		must(t, r.inLambda(), failsOpen.Key("t", "other"), r.c.run) // other keys fail open as before

		r.faults.Heal()
		v := must(t, r.inLambda(), key, r.c.run)
		require.Equal(t, 1, v, "the outcome that was written first")
		require.Equal(t, 2, r.c.count())
	})
}

// The outage ends between what is written first and the claim: the process that holds
// the outcome writes it before it claims, or does not claim.
func TestNoKeyIsClaimedWhoseOutcomeWaitsToBeWritten(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refused int // of the writes of the outcome during the second call
		err     error
	}{
		{"written at the second try", 1, nil},
		{"not to be written", 2, idem.ErrStoreUnavailable},
	} {
		for _, op := range []idem.Operation{safe, unsafe, failsOpen} {
			t.Run(tc.name+"/"+op.Name+"/"+op.Repeat.String(), func(t *testing.T) {
				r := newRig(t, &idem.Options{Lease: time.Second})
				key := op.Key("t", "k")
				r.faults.Always(idemtest.Refuse, idemtest.Finish)
				must(t, r.inLambda(), key, r.c.run)
				r.clock.Advance(time.Minute) // also a claim's lease is over
				r.faults.Heal()
				for range tc.refused {
					r.faults.Next(idemtest.Finish, idemtest.Refuse)
				}
				r.faults.Reset()
				v, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, r.c.run)
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, 1, r.c.count())
				if tc.err == nil {
					require.Equal(t, 1, v)
					return
				}
				require.NotContains(t, r.faults.Calls(), idemtest.Withdraw, "there is no claim to take back")
				require.Equal(t, 1, must(t, r.inLambda(), key, r.c.run))
				require.Equal(t, 1, r.c.count())
			})
		}
	}
}

// The outcomes of other keys wait on meanwhile.
func TestAnOutcomeThatIsWrittenForItsKeyLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, keys := newRig(t, nil), []idem.Key{safe.Key("t", "a"), safe.Key("t", "b")}
		r.faults.Always(idemtest.Refuse, idemtest.Finish)
		finished(t, r.inLambda(), keys[0])
		finished(t, r.inLambda(), keys[1])
		r.faults.Heal()
		require.Equal(t, 1, must(t, r.inLambda(), keys[1], fails(errPlain)))
		require.Equal(t, idem.InProgress, r.state(t, keys[0]))
		require.NoError(t, r.engine.Flush(t.Context()))
		require.Equal(t, idem.Completed, r.state(t, keys[0]))
	})
}

// Another call in the same process waits while the outcome is lost: it must not take over
// what its process knows, not even when the lease is over.
func TestAWaiterTakesOverNothingThatItsProcessKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &idem.Options{Wait: time.Minute})
		key := safe.Key("t", "k")
		r.faults.Always(idemtest.Refuse, idemtest.Finish)
		done := make(chan error)
		must(t, r, key, func(ctx context.Context, n int) (int, error) {
			go func() {
				_, err := idem.Do(t.Context(), r.engine, key, 1, r.c.run)
				done <- err
			}()
			time.Sleep(time.Second)
			return 1, nil
		})
		require.ErrorIs(t, <-done, idem.ErrStoreUnavailable)
		require.Zero(t, r.c.count())
	})
}

// While the background writes the outcome, a call waits for it.
func TestACallWaitsForWhatIsJustBeingWritten(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Next(idemtest.Finish, idemtest.Refuse, slow(300*time.Millisecond, idemtest.Pass))
		must(t, r, key, r.c.run)
		time.Sleep(100 * time.Millisecond) // the background has it in its hands
		require.Equal(t, 1, must(t, r, key, r.c.run))
		require.Equal(t, 1, r.c.count())
	})
}

// A store that answers is not down: nothing is opened, whatever the answer is.
func TestAStoreThatAnswersDoesNotFailOpen(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{
		"denied": idemtest.Deny, "unreadable": idemtest.Unreadable,
		"an error of its own": func(context.Context, *idemtest.Call) error { return errPlain },
		"in doubt, then denied": func(_ context.Context, c *idemtest.Call) error {
			return &idem.StoreError{Op: string(c.Method), Ambiguous: true, Err: errPlain}
		},
	} {
		testOn(t, name, failsOpen, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Always(fault)
			refused(t, r, key, nil, r.c.run)
			require.Zero(t, r.c.count())
			require.NotContains(t, r.events.take(), "failed_open")
		})
	}
}
