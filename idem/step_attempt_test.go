package idem_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/require"
)

// The write of a step that cannot be shown to have landed stops the operation, and
// the handler's result does not count.
func TestStepThatIsNotRecordedStopsTheOperation(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"reply lost": idemtest.LoseReply,
		"request lost": idemtest.LoseRequest} {
		for _, semantics := range []idem.StepSemantics{idem.AtLeastOnce, idem.AtMostOnce} {
			testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
				r.faults.Always(fault, idemtest.RecordStep)
				refused(t, r, key, idem.ErrStoreUnavailable, func(ctx context.Context, _ int) (string, error) {
					_, err := idem.Step(ctx, "ship", r.e.step("ship"), &idem.StepConfig[receiptOf]{Semantics: semantics})
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
					require.ErrorIs(t, context.Cause(ctx), idem.ErrStoreUnavailable)
					_, again := idem.Step(ctx, "more", r.e.step("more"), nil)
					require.Equal(t, err, again)
					return "pretends", nil
				})
				require.Zero(t, r.e.ran("more"))
				if semantics == idem.AtMostOnce {
					require.Zero(t, r.e.ran("ship"))
				}
				require.Equal(t, idem.Released, r.state(t, key), "nothing runs that is not recorded as begun")
				r.faults.Heal()
				must(t, r, key, steps(r.e.alone("ship", &idem.StepConfig[receiptOf]{Semantics: semantics})))
				require.LessOrEqual(t, r.e.ran("ship"), 2-int(semantics))
			})
		}
	}
}

// An attempt that was taken over finds out at its next step.
func TestZombieStopsAtItsNextStep(t *testing.T) {
	r, key := rigOn(t, safe)
	must(t, r, key, steps(func(ctx context.Context) (string, error) {
		r.clock.Advance(time.Hour)
		must(t, r.elsewhere(t), key, steps(r.e.alone("ship", nil)))
		_, err := idem.Step(ctx, "charge", r.e.step("charge"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce})
		require.ErrorIs(t, err, idem.ErrLeaseLost)
		require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
		return "zombie", nil
	})) // its caller gets the recorded outcome
	require.Zero(t, r.e.ran("charge"))
	require.Equal(t, 1, r.e.ran("ship"))
}

// A repeatable operation that hangs in an at-most-once step is parked from the side
// before the kill, and its own late outcome is still recorded.
func TestOpenStepIsParkedAtTheDeadline(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		kill := time.Now().Add(10 * time.Second)
		must(t, r.in(idem.WithKillTime(t.Context(), kill)), key, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.Step(ctx, "pay", func(context.Context) (int, error) {
				time.Sleep(time.Until(kill) - 10*time.Millisecond) // ignores its context
				require.Equal(t, idem.Unknown, r.state(t, key))
				return 7, nil
			}, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			return 0, err
		})
		require.Equal(t, idem.Completed, r.state(t, key))
	})
}

// The renewal of a lease does not give a record with steps an expiry again.
func TestHeartbeatKeepsStepsForGood(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		must(t, r, key, func(ctx context.Context, _ int) (string, error) {
			_, err := idem.Step(ctx, "ship", r.e.step("ship"), nil)
			require.NoError(t, err)
			time.Sleep(idem.DefaultLease)
			require.Zero(t, r.record(t, key).ExpiresAt)
			return "", nil
		})
		require.True(t, slices.Contains(r.faults.Calls(), idemtest.Extend))
	})
}

// No handler runs into a panic of the engine's when its step panics: it goes on,
// and the record says what is known.
func TestPanicInAStep(t *testing.T) {
	for semantics, want := range map[idem.StepSemantics]idem.State{idem.AtLeastOnce: idem.Released,
		idem.AtMostOnce: idem.Unknown} {
		r, key := rigOn(t, safe)
		require.PanicsWithValue(t, "boom", func() {
			_, _ = doSteps(t, r, key, func(ctx context.Context) (string, error) {
				_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { panic("boom") },
					&idem.StepConfig[int]{Semantics: semantics})
				return "", err
			})
		})
		require.Equal(t, want, r.state(t, key))
	}
}
