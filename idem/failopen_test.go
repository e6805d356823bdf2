package idem_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// An attempt without a claim finds a record that could be claimed: one that has
// expired or was released. The outcome must be recorded over it, or the next call
// runs again.
func TestFailOpenRecordsOverWhatIsFree(t *testing.T) {
	for _, tc := range []struct {
		name   string
		strict bool
		before func(*testing.T, *rig, idem.Key)
		later  time.Duration
	}{
		{"expired, waiver", true, finished, 48 * time.Hour},
		{"expired, repeatable", false, finished, 48 * time.Hour},
		{"expired failure", true, failed, 48 * time.Hour},
		{"released, waiver", true, released, 0},
		{"released, repeatable", false, released, 0},
		{"lapsed, repeatable", false, killed, time.Hour},
	} {
		for _, outage := range []string{"claim only", "finish refused too", "all replies lost"} {
			t.Run(tc.name+"/"+outage, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, c := newRig(t, nil), new(counter)
					key := openOp(tc.strict).Key("t", "k")
					tc.before(t, r, key)
					r.clock.Advance(tc.later)
					r.faults.Next(idemtest.Acquire, idemtest.Refuse)
					switch outage {
					case "finish refused too":
						r.faults.Next(idemtest.Finish, idemtest.Refuse)
					case "all replies lost":
						r.faults.Next(idemtest.Acquire, idemtest.LoseReply)
						r.faults.Next(idemtest.Finish, idemtest.LoseReply, idemtest.LoseReply)
					}
					v, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) { return 7, nil })
					require.NoError(t, err)
					require.Equal(t, 7, v, "its caller gets the result")
					require.NoError(t, r.engine.Flush(t.Context()))
					rec := r.record(t, key)
					require.Equal(t, idem.Completed, rec.State)
					require.Equal(t, 2, rec.Attempt)

					v, err = idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, c.run)
					require.NoError(t, err)
					require.Equal(t, 7, v)
					require.Zero(t, c.count(), "the next call replays it")
				})
			})
		}
	}
}

// A claim that is written only to end is watched as any other is: its process may die in
// between, and over a record that is not repeatable it becomes a question.
func TestFailOpenClaimsAreWatched(t *testing.T) {
	for _, watch := range []idem.Watch{idem.WatchNotRepeatable, idem.WatchAlways, idem.LeaveAbandonedUnnoticed} {
		for _, strict := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				before := openOp(true)
				released(t, r, before.Key("t", "k"))
				op := openOp(strict)
				op.Watch = watch
				key := op.Key("t", "k")
				r.faults.Next(idemtest.Acquire, idemtest.Refuse)
				var claim *idem.Record
				r.faults.Next(idemtest.Finish, idemtest.Pass, func(ctx context.Context, c *idemtest.Call) error {
					claim = r.record(t, key)
					return c.Do(ctx)
				})
				_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) { return 7, nil })
				require.NoError(t, err)
				require.Equal(t, idem.InProgress, claim.State)
				require.Equal(t, idem.NotRepeatable, claim.Repeat, "the record's own")
				left := watch == idem.LeaveAbandonedUnnoticed && strict
				require.Equal(t, left, claim.Due.IsZero(), "%v, %v", watch, strict)
				require.Equal(t, idem.Completed, r.record(t, key).State)
				require.Zero(t, r.record(t, key).Due)
			})
		}
	}
}

// indexed is a store with an index, which an end leaves only if it says that it may be there.
type indexed struct {
	*memstore.Store
	t *testing.T
}

func (s *indexed) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	rec, err := s.Get(ctx, f.ID)
	require.NoError(s.t, err)
	require.False(s.t, rec != nil && rec.HeldBy(f.Owner) && !rec.Due.IsZero() && !f.Watched, "the record stays in the index")
	return s.Store.Finish(ctx, now, f)
}

// An end that could not be written over such a claim still takes it out of the index later.
func TestAQueuedEndWithoutAClaimLeavesTheIndex(t *testing.T) {
	mem := memstore.New()
	r := &rig{mem: mem, faults: idemtest.NewFaults(&indexed{mem, t}), clock: new(idemtest.Clock), events: new(events)}
	var err error
	r.engine, err = idem.New(r.faults, &idem.Options{Now: r.clock.Now})
	require.NoError(t, err)
	released(t, r, openOp(true).Key("t", "k"))
	key := openOp(false).Key("t", "k")
	r.faults.Next(idemtest.Acquire, idemtest.Refuse)
	r.faults.Next(idemtest.Finish, idemtest.Pass, idemtest.LoseRequest)
	_, err = idem.Do(inLambda(t.Context()), r.engine, key, 1, func(context.Context, int) (int, error) { return 7, nil })
	require.NoError(t, err)
	require.NotZero(t, r.record(t, key).Due)
	require.NoError(t, r.engine.Flush(t.Context()))
	require.Equal(t, idem.Completed, r.record(t, key).State)
}

// An attempt whose outcome nobody knows leaves an open question in such a record
// too.
func TestFailOpenParksOverWhatIsFree(t *testing.T) {
	r := newRig(t, nil)
	key := openOp(true).Key("t", "k")
	finished(t, r, key)
	r.clock.Advance(48 * time.Hour)
	r.faults.Next(idemtest.Acquire, idemtest.Refuse)
	_, err := idem.Do(t.Context(), r.engine, key, 1, fails(errPlain))
	require.Same(t, errPlain, err)
	require.Equal(t, idem.Unknown, r.state(t, key))
}

// A customer is charged, the reply is lost, the table goes down, and the retry fails open. The
// log names the record once. The record tells the two apart by its age, as the runbook does.
func TestACallThatFailedOpenBesideARecordedOneIsNamedOnce(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *rig, idem.Key){"charged before": finished, "charged once": nil} {
		t.Run(name, func(t *testing.T) {
			r, c := newRig(t, nil), new(counter)
			key := openOp(true).Key("t", "k")
			if before != nil {
				before(t, r, key)
				r.clock.Advance(time.Minute)
			}
			r = r.elsewhere(t) // a process that remembers no outcome
			line := r.clock.Now()
			r.faults.Next(idemtest.Acquire, idemtest.Refuse)
			_, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
			require.NoError(t, err)
			require.NoError(t, r.engine.Flush(t.Context()))
			require.Equal(t, 1, c.count())
			named := slices.DeleteFunc(slices.Clone(r.events.notices), func(n notice.Notice) bool { return n.Kind != notice.FailedOpen })
			require.Len(t, named, 1)
			rec := r.record(t, key)
			require.Equal(t, before != nil, rec.CreatedAt.Before(line.Add(-10*time.Second)), "%v, %v", rec.CreatedAt, line)
		})
	}
	page, err := os.ReadFile("../infra/RUNBOOK.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## FailedOpen")
	section, _, _ = strings.Cut(section, "\n## ")
	require.Contains(t, section, "each record that the query names, once or more often")
	require.Contains(t, section, "was `Created` earlier than some seconds\nbefore the line")
}

// It does not overwrite a conflicting record: a live claim, another input's outcome.
func TestFailOpenLeavesWhatIsNotFree(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testing.T, *rig, idem.Key)
		input  int
		err    error
	}{
		"a live claim":      {killed, 1, idem.ErrLeaseLost},
		"another's outcome": {finished, 2, idem.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			key := openOp(false).Key("t", "k")
			tc.before(t, r, key)
			old := r.record(t, key)
			r.faults.Next(idemtest.Acquire, idemtest.Refuse)
			_, err := idem.Do(t.Context(), r.engine, key, tc.input, func(context.Context, int) (int, error) { return 7, nil })
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, old, r.record(t, key))
		})
	}
}

// An attempt without a claim that executed nothing has nothing to remember: it
// does not claim a record that is free for it.
func TestFailOpenThatExecutedNothingLeavesWhatIsFree(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *rig, idem.Key){"released": released, "expired": finished} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			key := openOp(false).Key("t", "k")
			before(t, r, key)
			if name == "expired" {
				r.clock.Advance(48 * time.Hour)
			}
			old := r.record(t, key)
			r.faults.Next(idemtest.Acquire, idemtest.Refuse)
			_, err := idem.Do(t.Context(), r.engine, key, 1, fails(idem.NotExecuted(errPlain)))
			require.Error(t, err)
			require.Equal(t, old, r.record(t, key))
		})
	}
}

// A retry during the outage, in the process that still holds the outcome in memory:
// it must not run again, since this process knows that it has run.
func TestFailOpenDoesNotRepeatWhatWaitsToBeWritten(t *testing.T) {
	for _, strict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, c := newRig(t, nil), new(counter)
			op := openOp(strict)
			r.faults.Always(idemtest.Refuse)
			v, err := idem.Do(inLambda(t.Context()), r.engine, op.Key("t", "k"), 1, c.run)
			require.NoError(t, err)
			require.Equal(t, 1, v)
			_, err = idem.Do(inLambda(t.Context()), r.engine, op.Key("t", "k"), 1, c.run)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Equal(t, 1, c.count())
			_, err = idem.Do(inLambda(t.Context()), r.engine, op.Key("t", "other"), 1, c.run)
			require.NoError(t, err, "other keys fail open as before")
			for range 2 {
				_, err = idem.Do(inLambda(t.Context()), r.engine, op.Key("t", "released"), 1, fails(idem.NotExecuted(errPlain)))
				require.Same(t, errPlain, err, "what may run again does")
			}

			r.faults.Heal()
			v, err = idem.Do(inLambda(t.Context()), r.engine, op.Key("t", "k"), 1, c.run)
			require.NoError(t, err)
			require.Equal(t, 1, v, "the outcome that was written first")
			require.Equal(t, 2, c.count())
		})
	}
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
		for _, op := range []idem.Operation{safe, unsafe, openOp(false), openOp(true)} {
			t.Run(tc.name+"/"+op.Name+"/"+op.Repeat.String(), func(t *testing.T) {
				r, c := newRig(t, &idem.Options{Lease: time.Second}), new(counter)
				key := op.Key("t", "k")
				r.faults.Always(idemtest.Refuse, idemtest.Finish)
				if op.OnStoreFailure != idem.FailClosed {
					r.faults.Next(idemtest.Acquire, idemtest.Refuse)
				}
				_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
				require.NoError(t, err)
				r.clock.Advance(time.Minute) // also a claim's lease is over
				r.faults.Heal()
				for range tc.refused {
					r.faults.Next(idemtest.Finish, idemtest.Refuse)
				}
				r.faults.Reset()
				v, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, 1, c.count())
				if tc.err == nil {
					require.Equal(t, 1, v)
					return
				}
				require.NotContains(t, r.faults.Calls(), idemtest.Withdraw, "there is no claim to take back")
				v, err = idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
				require.NoError(t, err)
				require.Equal(t, 1, v)
				require.Equal(t, 1, c.count())
			})
		}
	}
}

// Another call in the same process waits while the outcome is lost: it must not take over
// what its process knows, not even when the lease is over.
func TestAWaiterTakesOverNothingThatItsProcessKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRig(t, &idem.Options{Wait: time.Minute}), new(counter)
		key := safe.Key("t", "k")
		r.faults.Always(idemtest.Refuse, idemtest.Finish)
		done := make(chan error)
		_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
			go func() {
				_, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
				done <- err
			}()
			time.Sleep(time.Second)
			return 1, nil
		})
		require.NoError(t, err)
		require.ErrorIs(t, <-done, idem.ErrStoreUnavailable)
		require.Zero(t, c.count())
	})
}

// While the background writes the outcome, a call waits for it.
func TestACallWaitsForWhatIsJustBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newRig(t, nil), new(counter)
		key := openOp(true).Key("t", "k")
		r.faults.Next(idemtest.Acquire, idemtest.Refuse)
		r.faults.Next(idemtest.Finish, idemtest.Refuse, slow(300*time.Millisecond, idemtest.Pass))
		_, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond) // the background has it in its hands
		v, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
		require.NoError(t, err)
		require.Equal(t, 1, v)
		require.Equal(t, 1, c.count())
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
		for _, strict := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				r, c := newRig(t, nil), new(counter)
				r.faults.Always(fault)
				_, err := idem.Do(t.Context(), r.engine, openOp(strict).Key("t", "k"), 1, c.run)
				require.Error(t, err)
				require.Zero(t, c.count())
				require.NotContains(t, r.events.take(), "failed_open")
			})
		}
	}
}

// Another process's claim may land first, or its withdrawal: the outcome is written
// over what is left of it.
func TestFailOpenOutcomeLandsOverAWithdrawnClaim(t *testing.T) {
	r, c := newRig(t, nil), new(counter)
	key := openOp(true).Key("t", "k")
	r.faults.Next(idemtest.Acquire, idemtest.Refuse)
	r.faults.Next(idemtest.Finish, idemtest.Refuse)
	_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
	require.NoError(t, err)
	other := idem.Operation{Name: openOp(true).Name} // which fails closed
	w := r.elsewhere(t)
	w.faults.Next(idemtest.Acquire, idemtest.LoseReply)
	_, err = idem.Do(inLambda(t.Context()), w.engine, other.Key("t", "k"), 1, c.run)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Equal(t, idem.Released, r.state(t, key))
	v, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
	require.NoError(t, err)
	require.Equal(t, 1, v)
	require.Equal(t, 1, c.count())
}
