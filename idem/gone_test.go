package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// Takeovers, and what takes them back, are of the life of the key that they have seen.

// A withdrawal of a takeover that comes after that life makes no record: its steps would
// be skipped in the next life.
func TestALateWithdrawalBringsNoStepsBack(t *testing.T) {
	op := idem.Operation{Name: "short", Repeat: idem.Repeatable, Retention: time.Minute}
	r, e := newRig(t, nil), new(effects)
	key := op.Key("t", "k")
	handler := func(last error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			_, err := idem.Step(ctx, "charge", e.step("charge"), nil)
			require.NoError(t, err)
			return "ok", last
		}
	}
	_, err := doSteps(t, r, key, handler(errPlain))
	require.Same(t, errPlain, err)
	require.Equal(t, idem.Released, r.state(t, key))

	// A takeover whose request is lost, and a withdrawal of it that is delayed.
	var held *idemtest.Call
	r.faults.Next(idemtest.Acquire, idemtest.Pass, idemtest.LoseRequest)
	r.faults.Next(idemtest.Withdraw, idemtest.Hold(&held))
	_, err = doSteps(t, r, key, handler(nil))
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)

	// Another process completes the operation; the outcome expires, and TTL deletes it.
	_, err = doSteps(t, r.elsewhere(t), key, handler(nil))
	require.NoError(t, err)
	r.clock.Advance(5 * time.Minute)
	r.mem.Delete(key.ID())
	require.Error(t, held.Do(t.Context()))
	require.Nil(t, r.record(t, key))
	_, err = doSteps(t, r.elsewhere(t), key, handler(nil))
	require.NoError(t, err)
	require.Equal(t, 2, e.ran("charge"), "once in each life")
}

// leftExpired leaves an outcome that has expired.
func leftExpired(t *testing.T, r *rig, key idem.Key) {
	t.Helper()
	finished(t, r, key)
	r.clock.Advance(2 * idem.DefaultRetention)
}

// A commit in atomic mode over an expired record that TTL deletes before the commit makes the
// record.
func TestAnAtomicCommitOverWhatIsGoneReservesAnew(t *testing.T) {
	r, key := newRig(t, nil), atomically.Key("t", "k")
	leftExpired(t, r, key)
	c := new(counter)
	res, err := idem.Run(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
		r.mem.Delete(key.ID())
		return c.run(ctx, n)
	})
	require.NoError(t, err)
	require.True(t, res.Outcome.Executed)
	require.Equal(t, 1, c.count())
	require.Equal(t, 1, r.record(t, key).Attempt)
}

// Such a commit in doubt cannot land any more, so the call may say that it has not, and
// leaves nothing in its way.
func TestAnAtomicCommitInDoubtOverWhatIsGoneNeverLands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, key := newRig(t, nil), atomically.Key("t", "k")
		leftExpired(t, r, key)
		var held *idemtest.Call
		r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
			r.mem.Delete(key.ID())
			return idemtest.Hold(&held)(ctx, c)
		})
		_, err := idem.Do(t.Context(), r.engine, key, 1, new(counter).run)
		var failed *idem.CommitError
		require.ErrorAs(t, err, &failed)
		require.False(t, failed.Ambiguous)
		require.Equal(t, idem.Absent, failed.State)
		require.NotNil(t, held)
		require.Error(t, held.Do(t.Context()))
		require.Nil(t, r.record(t, key))
		require.NotContains(t, r.events.take(), "outcome_queued")
	})
}

// Whether a record has expired is decided once: a clock that is set back a moment later
// makes an attempt without outcome no outcome of the expired record's.
func TestAnAtomicAttemptOverAnExpiredRecordGoesByOneReadingOfTheClock(t *testing.T) {
	for reading := range 12 {
		r, key := newRig(t, nil), atomically.Key("t", "k")
		_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) { return 0, idem.Permanent(errPlain) })
		require.Same(t, errPlain, err)
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

// A commit in doubt that has seen no record is kept from landing by one that TTL does not
// delete soon: the expired record in its way is none.
func TestAnAtomicCommitInDoubtBeforeAnExpiredRecordNeverLands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, key := newRig(t, nil), atomically.Key("t", "k")
		leftExpired(t, r, key)
		r.faults.Next(idemtest.Get, readsNothing)
		var held *idemtest.Call
		r.faults.Next(idemtest.Finish, idemtest.Hold(&held))
		_, err := idem.Do(t.Context(), r.engine, key, 1, new(counter).run)
		var failed *idem.CommitError
		require.ErrorAs(t, err, &failed)
		require.False(t, failed.Ambiguous)
		require.Equal(t, idem.Released, failed.State)
		if rec := r.record(t, key); rec.Expired(r.clock.Now().Add(15 * time.Minute)) {
			r.mem.Delete(key.ID())
		}
		require.Error(t, held.Do(t.Context()), "AWS takes a signed request for 15 minutes")
		require.Equal(t, idem.Released, r.state(t, key))
	})
}
