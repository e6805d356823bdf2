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

// An attempt without a claim meets a record that stands in nobody's way: one that
// has expired, or that is free to be claimed. Its outcome must not be lost to it,
// or the next call runs again.
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
		{"lapsed, repeatable", false, abandoned, time.Hour},
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

					v, err = idem.Do(t.Context(), r.twin(t).engine, key, 1, c.run)
					require.NoError(t, err)
					require.Equal(t, 7, v)
					require.Zero(t, c.count(), "the next call replays it")
				})
			})
		}
	}
}

// One that nobody knows the end of is an open question also where it meets such a
// record.
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

// What stands in its way keeps standing: a live claim, another input's outcome.
func TestFailOpenLeavesWhatIsNotFree(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testing.T, *rig, idem.Key)
		input  int
		err    error
	}{
		"a live claim":      {abandoned, 1, idem.ErrLeaseLost},
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

// The claim of that retry may land, or its withdrawal: the outcome is written over
// what is left of it.
func TestFailOpenOutcomeLandsOverARetrysWithdrawnClaim(t *testing.T) {
	r, c := newRig(t, nil), new(counter)
	key := openOp(true).Key("t", "k")
	r.faults.Next(idemtest.Acquire, idemtest.Refuse, idemtest.LoseReply)
	r.faults.Next(idemtest.Finish, idemtest.Refuse, idemtest.Refuse)
	_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
	require.NoError(t, err)
	_, err = idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Equal(t, idem.Retryable, r.state(t, key))
	v, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
	require.NoError(t, err)
	require.Equal(t, 1, v)
	require.Equal(t, 1, c.count())
}
