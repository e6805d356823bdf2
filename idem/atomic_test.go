package idem_test

import (
	"context"
	"fmt"
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

// A call whose first read uses up its time runs nothing.
func TestAtomicWithoutTimeRunsNothing(t *testing.T) {
	inBubble(t, atomically, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Always(slow(2*time.Second, idemtest.Pass), idemtest.Get)
		ctx := idem.WithKillTime(t.Context(), time.Now().Add(2*time.Second))
		refused(t, r.in(ctx), key, idem.ErrStoreUnavailable, r.c.run)
		require.Zero(t, r.c.count())
	})
}

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

// What the record of an earlier attempt, whatever its mode, means for one in atomic mode, and one that another call
// has written while the body ran, also where that fails permanently.
func TestAtomicFindsARecord(t *testing.T) {
	parks := func(t *testing.T, r *rig, key idem.Key) {
		uncertainly(t, r, key)
		refused(t, r, strictly.Key("t", "k"), idem.ErrOutcomeUnknown, fails(errPlain))
	}
	for _, tc := range []struct {
		name    string
		before  play
		want    error // nil: it runs, or replays what is completed
		state   idem.State
		attempt int
	}{
		{"released, uncertain", uncertainly, nil, idem.Completed, 2},
		{"released", released, nil, idem.Completed, 2},
		{"lapsed", lapsed, nil, idem.Completed, 2},
		{"expired", leftExpired, nil, idem.Completed, 2},
		{"completed", finished, nil, idem.Completed, 1},
		{"failed", failed, recordedPlain, idem.Failed, 1},
		{"in flight", killed, idem.ErrInFlight, idem.InProgress, 1},
		{"accepted", accepted, idem.ErrAccepted, idem.Pending, 1},
		{"with steps", leaving(protocol.StepWrite{Name: "ship", Result: []byte("1")}), idem.ErrOutcomeUnknown,
			idem.Unknown, 1},
		{"unknown", parks, idem.ErrOutcomeUnknown, idem.Unknown, 1},
	} {
		for name, read := range firstReads {
			for how, end := range map[string]error{"result": nil, "permanent": idem.Permanent(errPlain)} {
				testOn(t, fmt.Sprint(tc.name, "/", name, "/", how), atomically, func(t *testing.T, r *rig, key idem.Key) {
					tc.before(t, r, safe.Key("t", "k")) // in the reserved mode
					r.faults.Next(idemtest.Get, read)
					ran := 0
					res, err := idem.Run(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
						ran++
						return 1, end
					})
					rec := r.record(t, key)
					require.Equal(t, tc.attempt, rec.Attempt)
					if tc.attempt == 1 {
						expect(t, tc.want, err)
						require.Equal(t, name == "written after the read", ran == 1)
						require.Equal(t, tc.state, rec.State)
						require.Equal(t, tc.state == idem.Completed || tc.state == idem.Failed, res.Outcome.Replayed)
						return
					}
					require.Equal(t, idem.Unmark(end), err)
					require.Equal(t, map[bool]idem.State{true: idem.Completed, false: idem.Failed}[end == nil], rec.State)
					require.False(t, res.Outcome.Replayed)
					require.Equal(t, tc.attempt, res.Outcome.Attempt)
					require.Equal(t, 1, ran, "the conflicting record does not run the body again")
				})
			}
		}
	}
}

// A commit that could not be fenced may land before the fence that waits in the queue: then it stands.
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

// Nothing runs without the read before the handler, and a record that cannot be read is never
// replaced, whether the first read finds it or the commit.
func TestAtomicFailsClosedOnAnUnreadableRecord(t *testing.T) {
	for name, read := range map[string]idemtest.Fault{"read": idemtest.Unreadable,
		"written after the read": readsNothing} {
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
