package idem_test

import (
	"context"
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

// An attempt that was taken over finds out with what it records next, and its caller gets the recorded outcome.
func TestZombieStopsAtItsNextStep(t *testing.T) {
	never := func(context.Context) (int, error) { panic("it must not run") }
	for name, next := range map[string]func(context.Context) error{
		"a step": func(ctx context.Context) error { _, err := idem.Step(ctx, "ship", one, nil); return err },
		"a step of at most once": func(ctx context.Context) error {
			_, err := idem.Step(ctx, "charge", never, onceOnly)
			return err
		},
		"a reference": func(ctx context.Context) error { return idem.SetReference(ctx, "pay_1") },
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			require.Equal(t, 1, must(t, r.inLambda(), key, func(ctx context.Context, _ int) (int, error) {
				r.clock.Advance(time.Hour)
				must(t, r.elsewhere(t), key, refer(t, "pay_2"))
				require.ErrorIs(t, next(ctx), idem.ErrLeaseLost)
				require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
				_, err := idem.Step(ctx, "more", never, nil)
				require.ErrorIs(t, err, idem.ErrLeaseLost)
				return 7, nil
			}))
			require.Equal(t, "pay_2", r.record(t, key).Ref)
		})
	}
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
