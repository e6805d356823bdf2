package idem_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

var (
	atomically = idem.Operation{Name: "safe", Repeat: idem.Repeatable, Mode: idem.Atomic}
	// firstReads is how the first read of a call in atomic mode ends. A record that it does not
	// find is found by the commit, after the handler has run.
	firstReads = map[string]idemtest.Fault{"read": idemtest.Pass, "written after the read": readsNothing}
)

// readsNothing answers a read as if the record were not written yet.
func readsNothing(context.Context, *idemtest.Call) error { return nil }

// The calls of atomic mode: no claim, ever.
func TestAtomicCalls(t *testing.T) {
	for _, tc := range []struct {
		name   string
		replay []idemtest.Method
		runs   int // after the replay
	}{
		{"read", []idemtest.Method{idemtest.Get, idemtest.Result}, 1},
		{"written after the read", []idemtest.Method{idemtest.Get, idemtest.Finish, idemtest.Result}, 2},
	} {
		testOn(t, tc.name, atomically, func(t *testing.T, r *rig, key idem.Key) {
			first := mustRun(t, r, key, func(ctx context.Context, n int) (int, error) {
				info, ok := idem.InfoOf(ctx)
				require.True(t, ok)
				require.True(t, info.WithoutClaim)
				require.Zero(t, info.LeaseUntil)
				require.Equal(t, 1, info.Attempt)
				require.Equal(t, info.Token, idem.Token(ctx))
				return r.c.run(ctx, n)
			})
			require.Equal(t, 1, first.Value)
			require.Equal(t, []idemtest.Method{idemtest.Get, idemtest.Finish}, r.faults.Calls())
			rec := r.record(t, key)
			require.Equal(t, idem.Completed, rec.State)
			require.Equal(t, 1, rec.Attempt)
			require.Equal(t, first.Outcome.ExpiresAt, rec.ExpiresAt)
			require.Equal(t, idem.Repeatable, rec.Repeat)

			r.faults.Reset()
			r.faults.Next(idemtest.Get, firstReads[tc.name])
			again := mustRun(t, r, key, r.c.run)
			require.True(t, again.Outcome.Replayed)
			require.Equal(t, 1, again.Value, "the recorded outcome, not that of the body that ran in vain")
			require.Equal(t, first.Outcome.Body, again.Outcome.Body)
			require.Equal(t, tc.replay, r.faults.Calls())
			require.Equal(t, tc.runs, r.c.count())

			_, err := idem.Do(t.Context(), r.engine, key, 2, r.c.run)
			require.ErrorIs(t, err, idem.ErrKeyReused)
		})
	}
}

// How an attempt ends, and what is left of it.
func TestEveryEndInAtomicMode(t *testing.T) {
	for _, tc := range []struct {
		name    string
		handler func(context.Context, int) (int, error)
		state   idem.State
	}{
		{"result", new(counter).run, idem.Completed},
		{"plain error", fails(errPlain), idem.Absent},
		{"not executed", fails(idem.NotExecuted(errPlain)), idem.Absent},
		{"permanent", fails(idem.Permanent(errPlain)), idem.Failed},
		{"not executed beside a result", func(ctx context.Context, _ int) (int, error) {
			idem.SetNotExecuted(ctx)
			return 7, nil
		}, idem.Absent},
	} {
		for name, read := range firstReads {
			testOn(t, tc.name+"/"+name, atomically, func(t *testing.T, r *rig, key idem.Key) {
				live, liveErr := idem.Run(t.Context(), r.engine, key, 1, tc.handler)
				require.Equal(t, tc.state, live.Outcome.RecordState)
				require.Equal(t, 1, live.Outcome.Attempt, "it is the caller's own attempt")
				require.Equal(t, tc.state, r.state(t, key))
				if tc.state != idem.Completed && live.Value != 7 {
					require.Same(t, errPlain, liveErr)
				}
				r.faults.Next(idemtest.Get, read)
				_, err := idem.Do(t.Context(), r.engine, key, 1, r.c.run)
				switch tc.state {
				case idem.Failed:
					recorded := errorAs[*idem.RecordedError](t, err)
					require.Equal(t, "plain", recorded.Message)
				default:
					require.NoError(t, err)
					require.Equal(t, idem.Completed, r.state(t, key))
				}
			})
		}
	}
	testOn(t, "panic", atomically, func(t *testing.T, r *rig, key idem.Key) {
		require.PanicsWithValue(t, "boom", func() {
			_, _ = idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) { panic("boom") })
		})
		require.Equal(t, idem.Absent, r.state(t, key))
	})
	testOn(t, "no time", atomically, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Always(slow(2*time.Second, idemtest.Pass), idemtest.Get)
		ctx := idem.WithKillTime(t.Context(), time.Now().Add(2*time.Second))
		refused(t, r.in(ctx), key, idem.ErrStoreUnavailable, r.c.run)
		require.Zero(t, r.c.count())
	})
}

// What the record of an earlier attempt, whatever its mode, means for one in
// atomic mode.
func TestAtomicFindsARecord(t *testing.T) {
	for _, tc := range []struct {
		name    string
		before  func(*testing.T, *rig, idem.Key)
		want    error // nil: it runs
		state   idem.State
		attempt int
	}{
		{"released", all(uncertainly), nil, idem.Completed, 2},
		{"released", all(released), nil, idem.Completed, 2},
		{"lapsed", all(killed, twoDays), nil, idem.Completed, 2},
		{"expired", all(finished, twoDays), nil, idem.Completed, 2},
		{"in flight", all(killed), idem.ErrInFlight, idem.InProgress, 1},
		{"accepted", all(accepted), idem.ErrAccepted, idem.Pending, 1},
		{"with steps", func(t *testing.T, r *rig, key idem.Key) {
			killedWith(t, r, key, protocol.StepWrite{Name: "ship", Result: []byte("1")})
		}, idem.ErrOutcomeUnknown, idem.Unknown, 1},
		{"unknown", func(t *testing.T, r *rig, key idem.Key) {
			uncertainly(t, r, key)
			refused(t, r, idem.Operation{Name: "safe"}.Key("t", "k"), idem.ErrOutcomeUnknown, new(counter).run)
		}, idem.ErrOutcomeUnknown, idem.Unknown, 1},
	} {
		for name, read := range firstReads {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				r := newRig(t, nil)
				tc.before(t, r, safe.Key("t", "k")) // in the reserved mode
				r.faults.Next(idemtest.Get, read)
				res, err := idem.Run(t.Context(), r.engine, atomically.Key("t", "k"), 1, r.c.run)
				rec := r.record(t, atomically.Key("t", "k"))
				require.Equal(t, tc.state, rec.State)
				if tc.want != nil {
					require.ErrorIs(t, err, tc.want)
					require.Equal(t, name == "written after the read", r.c.count() == 1)
					require.Equal(t, tc.attempt, rec.Attempt)
					return
				}
				require.NoError(t, err)
				require.False(t, res.Outcome.Replayed)
				require.Equal(t, tc.attempt, rec.Attempt)
				require.Equal(t, tc.attempt, res.Outcome.Attempt)
				require.Equal(t, 1, r.c.count(), "the conflicting record does not run the body again")
			})
		}
	}
}

// Many at once: bodies run as often as they like, one commits, and all callers
// get its outcome.
func TestAtomicConcurrentDuplicates(t *testing.T) {
	for name, read := range firstReads {
		testOn(t, name, atomically, func(t *testing.T, r *rig, key idem.Key) {
			const n = 20
			for range n {
				r.faults.Next(idemtest.Get, read)
			}
			var wg sync.WaitGroup
			got := make([]string, n)
			for i := range n {
				wg.Go(func() {
					out, err := idem.Do(t.Context(), r.engine, key, 1,
						func(context.Context, int) (string, error) { return fmt.Sprint("body ", i), nil })
					require.NoError(t, err)
					got[i] = out
				})
			}
			wg.Wait()
			for _, out := range got {
				require.Equal(t, got[0], out)
			}
		})
	}
}

// A commit that could not be fenced may land before the fence that waits in the queue:
// then it stands.
func TestAtomicLandsBeforeItsBar(t *testing.T) {
	inBubble(t, atomically, func(t *testing.T, r *rig, key idem.Key) {
		var held *idemtest.Call
		r.faults.Next(idemtest.Finish, idemtest.Hold(&held))
		r.faults.Next(idemtest.Withdraw, idemtest.LoseRequest)
		_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, r.c.run)
		failed := errorAs[*idem.CommitError](t, err)
		require.True(t, failed.Ambiguous)
		require.NoError(t, held.Do(t.Context()))
		res := mustRun(t, r.inLambda(), key, r.c.run)
		require.True(t, res.Outcome.Replayed)
		require.Equal(t, 1, res.Value)
		require.Equal(t, 1, r.c.count())
	})
}

// Another call commits while the body runs: the caller gets the other call's outcome, also
// where its own body failed permanently.
func TestAtomicLosesToAConcurrentDuplicate(t *testing.T) {
	for name, end := range map[string]error{"result": nil, "permanent": idem.Permanent(errPlain)} {
		testOn(t, name, atomically, func(t *testing.T, r *rig, key idem.Key) {
			res := mustRun(t, r, key, func(context.Context, int) (int, error) {
				finished(t, r.elsewhere(t), key)
				return 99, end
			})
			require.True(t, res.Outcome.Replayed)
			require.Equal(t, 1, res.Value)
		})
	}
}

// Nothing runs without the read before the handler, and a record that cannot be read is never
// replaced, whether the first read finds it or the commit.
func TestAtomicFailsClosedOnAnUnreadableRecord(t *testing.T) {
	for name, read := range map[string]idemtest.Fault{
		"read": idemtest.Unreadable, "written after the read": readsNothing,
	} {
		testOn(t, name, atomically, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Next(idemtest.Get, read)
			r.faults.Always(idemtest.Unreadable)
			refused(t, r, key, idem.ErrRecordUnreadable, r.c.run)
			require.Equal(t, name == "written after the read", r.c.count() == 1)
			require.Contains(t, r.events.take(), "record_unreadable")
		})
	}
	// Unreadable once, as another call's write may make it look: the next read tells.
	r := newRig(t, nil)
	finished(t, r, atomically.Key("t", "k"))
	r.faults.Next(idemtest.Get, readsNothing)
	r.faults.Next(idemtest.Finish, idemtest.Unreadable)
	res := mustRun(t, r, atomically.Key("t", "k"), r.c.run)
	require.True(t, res.Outcome.Replayed)
	r.faults.Next(idemtest.Get, idemtest.Refuse)
	refused(t, r, atomically.Key("t", "other"), idem.ErrStoreUnavailable, fails(errPlain))
}

// The record of a commit that was taken back outlives every write that may still be
// sent, and tells a stricter call that the body ran.
func TestATakenBackCommitIsRemembered(t *testing.T) {
	briefly := atomically
	briefly.Retention = time.Second
	inBubble(t, briefly, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Next(idemtest.Finish, idemtest.LoseRequest)
		err := refused(t, r, key, idem.ErrNotCommitted, new(counter).run)
		require.NotContains(t, err.Error(), "may have been", "it has been fenced")
		rec := r.record(t, key)
		require.Equal(t, idem.Released, rec.State)
		require.GreaterOrEqual(t, rec.ExpiresAt.Sub(r.clock.Now()), 15*time.Minute, "AWS takes a signed request for as long")
		_, err = idem.Do(t.Context(), r.engine, idem.Operation{Name: briefly.Name}.Key("t", "k"), 1, new(counter).run)
		require.ErrorIs(t, err, idem.ErrOutcomeUnknown, "the body may have had an effect")
	})
}
