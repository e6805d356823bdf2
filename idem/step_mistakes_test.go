package idem_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

func TestStepMistakes(t *testing.T) {
	r, e := newRig(t, nil), new(effects)
	_, err := idem.Step(t.Context(), "s", e.step("s"))
	var mistake *idem.ConfigError
	require.ErrorAs(t, err, &mistake)
	require.ErrorContains(t, err, "pass the context that the handler was given")
	var escaped context.Context
	_, err = doSteps(t, r, safe.Key("t", "k"), func(ctx context.Context) (string, error) {
		escaped = ctx
		_, err := idem.Step(ctx, "once", e.step("once"))
		require.NoError(t, err)
		for problem, try := range map[string]func() error{
			"used twice": func() error { _, err := idem.Step(ctx, "once", e.step("s")); return err },
			"is empty":   func() error { _, err := idem.Step(ctx, "", e.step("s")); return err },
			"101 bytes":  func() error { _, err := idem.Step(ctx, strings.Repeat("x", 101), e.step("s")); return err },
			"control":    func() error { _, err := idem.Step(ctx, "a\nb", e.step("s")); return err },
			"own":        func() error { _, err := idem.Step(ctx, "idem:undo:once", e.step("s")); return err },
			"is nil":     func() error { _, err := idem.Step[int](ctx, "nil", nil); return err },
			"chan": func() error {
				_, err := idem.Step(ctx, "c", func(context.Context) (chan int, error) { return nil, nil })
				return err
			},
			"do not nest": func() error {
				_, err := idem.Step(ctx, "outer", func(ctx context.Context) (int, error) {
					return idem.Step(ctx, "inner", func(context.Context) (int, error) { return 1, nil })
				})
				return err
			},
			"MaxAttempts": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithRetry(idem.RetryConfig{MaxAttempts: -1}))
				return err
			},
			"delay": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithRetry(idem.RetryConfig{MaxDelay: -1}))
				return err
			},
			"BackoffRate": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithRetry(idem.RetryConfig{BackoffRate: 0.5}))
				return err
			},
			"WithSemantics": func() error { _, err := idem.Step(ctx, "r", e.step("s"), idem.WithSemantics(7)); return err },
			"takes a int": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithCompensation(func(context.Context, int) error { return nil }))
				return err
			},
			"with its unit": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithSemantics(idem.AtMostOnce), idem.WithInterrupted(10, e.found("s")))
				return err
			},
			"WithInterrupted has a nil function": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithSemantics(idem.AtMostOnce), idem.WithInterrupted[receiptOf](0, nil))
				return err
			},
			"WithCompensation has a nil function": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithCompensation[receiptOf](nil))
				return err
			},
			"gives a int": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithSemantics(idem.AtMostOnce),
					idem.WithInterrupted(0, func(context.Context, time.Time) (int, error) { return 1, nil }))
				return err
			},
			"just run again": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), idem.WithInterrupted(0, e.found("s")))
				return err
			},
		} {
			err := try()
			require.ErrorAs(t, err, &mistake, problem)
			require.ErrorContains(t, err, problem)
		}
		require.Zero(t, e.ran("s"), "nothing runs after a mistake")
		return "", nil
	})
	require.NoError(t, err)
	_, err = idem.Step(escaped, "late", e.step("s"))
	require.ErrorContains(t, err, "the handler has returned")
}
