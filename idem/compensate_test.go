package idem_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// trip books three things that can be undone, then ends in last.
func trip(e *effects, last error, undoErrs ...error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		for _, name := range []string{"flight", "hotel", "car"} {
			var errs []error
			if name == "hotel" {
				errs = undoErrs
			}
			if _, err := idem.Step(ctx, name, e.step(name),
				&idem.StepConfig[receiptOf]{Compensate: e.undo(name, errs...)}); err != nil {
				return "", err
			}
		}
		return "booked", last
	}
}

func (e *effects) all(names ...string) (runs []int) {
	for _, n := range names {
		runs = append(runs, e.ran(n))
	}
	return runs
}

// cutShort leaves a trip whose undoing has begun, and was cut short.
func cutShort(t *testing.T, r *rig, e *effects, key idem.Key) {
	t.Helper()
	err := refused(t, r, key, declinedError{}, steps(trip(e, idem.Permanent(declinedError{}), errPlain)))
	require.ErrorIs(t, err, errPlain)
	require.ErrorContains(t, err, `compensation of step "hotel"`)
	require.Equal(t, idem.Released, r.state(t, key))
	require.Equal(t, []int{0, 1, 1}, e.all(tripUndone...))
}

var tripUndone = []string{"undo flight", "undo hotel", "undo car"}

func TestCompensationsRunInReverse(t *testing.T) {
	r, key := rigOn(t, safe)
	var order []string
	undo := func(_ context.Context, r receiptOf) error {
		order = append(order, r.ID)
		return nil
	}
	refused(t, r, key, declinedError{}, steps(func(ctx context.Context) (string, error) {
		for _, name := range []string{"flight", "hotel", "car"} {
			_, err := idem.Step(ctx, name, r.e.step(name), &idem.StepConfig[receiptOf]{Compensate: undo})
			require.NoError(t, err)
		}
		_, err := idem.Step(ctx, "plain", r.e.step("plain"), nil)
		require.NoError(t, err)
		_, err = idem.Step(ctx, "pay", r.e.step("pay", idem.Permanent(declinedError{})),
			&idem.StepConfig[receiptOf]{Compensate: undo})
		return "", idem.PermanentStep(err)
	}))
	require.Equal(t, []string{"car", "hotel", "flight"}, order)
	require.Equal(t, idem.Failed, r.state(t, key))
	require.Equal(t, "card declined", r.record(t, key).Failure.Message)
}

// Only a permanent failure is undone.
func TestOtherEndsCompensateNothing(t *testing.T) {
	for name, last := range map[string]error{"success": nil, "plain": errPlain,
		"not executed": idem.NotExecuted(errPlain)} {
		r := newRig(t, nil)
		_, err := doSteps(t, r, safe.Key("t", "k"), trip(r.e, last))
		require.Equal(t, last == nil, err == nil, name)
		require.Equal(t, []int{0, 0, 0}, r.e.all(tripUndone...), name)
	}
}

// Once undoing has begun its cause is the outcome: a later attempt finishes undoing, each
// compensation that is recorded stays done, and fails with it, whatever its handler returns.
func TestWhatIsBeingUndoneFails(t *testing.T) {
	for name, then := range map[string]error{
		"success": nil, "plain": errPlain, "not executed": idem.NotExecuted(errPlain),
		"another failure": idem.Permanent(errPlain),
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			cutShort(t, r, r.e, key)
			for range 2 {
				err := refused(t, r, key, new(*idem.RecordedError), steps(func(ctx context.Context) (string, error) {
					_, err := trip(r.e, then)(ctx)
					require.Equal(t, then, err)
					_, err = idem.Step(ctx, "new", r.e.step("new"), nil)
					require.EqualError(t, err, "card declined", "nothing runs forward any more")
					return "booked", then
				}))
				require.EqualError(t, err, "card declined", "live as on replay")
				require.Equal(t, []int{1, 2, 1, 0}, r.e.all(append(tripUndone, "new")...))
				require.Equal(t, idem.Failed, r.state(t, key))
				require.Equal(t, "declinedError", r.record(t, key).Failure.Type)
			}
		})
	}
}

// An attempt that ends before it has come by all that must be undone leaves that to
// the next one.
func TestUndoingWaitsForAnAttemptThatComesByAllSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		end   error
		state idem.State
	}{"plain": {errPlain, idem.Released}, "not executed": {idem.NotExecuted(errPlain), idem.Released},
		"permanent": {idem.Permanent(errPlain), idem.Unknown}} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			cutShort(t, r, r.e, key)
			refused(t, r, key, errPlain, steps(func(context.Context) (string, error) { return "", tc.end }))
			require.Equal(t, tc.state, r.state(t, key))
			require.Equal(t, []int{0, 1, 1}, r.e.all(tripUndone...))
		})
	}
}

// A later attempt that undoes by hand answers in its own words.
func TestUndoneByHandInALaterAttempt(t *testing.T) {
	r, key := rigOn(t, safe)
	cutShort(t, r, r.e, key)
	got := must(t, r, key, func(ctx context.Context, _ int) (string, error) {
		_, err := trip(r.e, nil)(ctx)
		require.NoError(t, err)
		return "402", idem.Abort(ctx, errPlain)
	})
	require.Equal(t, "402", got)
	require.Equal(t, []int{1, 2, 1}, r.e.all(tripUndone...))
	require.Equal(t, idem.Completed, r.state(t, key))
}

// What cannot be undone needs somebody to look.
func TestCompensationThatFailsForGoodParks(t *testing.T) {
	r, key := rigOn(t, safe)
	refused(t, r, key, errPlain, steps(trip(r.e, idem.Permanent(declinedError{}), idem.Permanent(errPlain))))
	require.Equal(t, idem.Unknown, r.state(t, key))
}

// A compensation's token is its own, and the same each time.
func TestCompensationToken(t *testing.T) {
	r, key := rigOn(t, safe)
	tokens := map[string]int{}
	for range 2 {
		refused(t, r, key, nil, steps(func(ctx context.Context) (string, error) {
			_, err := idem.Step(ctx, "pay", r.e.step("pay"),
				&idem.StepConfig[receiptOf]{Compensate: func(ctx context.Context, _ receiptOf) error {
					tokens[idem.Token(ctx)]++
					require.NotEqual(t, protocol.Token(key.ID(), "pay"), idem.Token(ctx))
					return errPlain
				}})
			require.NoError(t, err)
			return "", idem.Permanent(declinedError{})
		}))
	}
	require.Len(t, tokens, 1)
}
