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
	_, err := idem.Step(t.Context(), "s", e.step("s"), nil)
	var mistake *idem.ConfigError
	require.ErrorAs(t, err, &mistake)
	require.ErrorContains(t, err, "pass the context that the handler was given")
	var escaped context.Context
	_, err = doSteps(t, r, safe.Key("t", "k"), func(ctx context.Context) (string, error) {
		escaped = ctx
		_, err := idem.Step(ctx, "once", e.step("once"), nil)
		require.NoError(t, err)
		for problem, try := range map[string]func() error{
			"used twice": func() error { _, err := idem.Step(ctx, "once", e.step("s"), nil); return err },
			"is empty":   func() error { _, err := idem.Step(ctx, "", e.step("s"), nil); return err },
			"101 bytes":  func() error { _, err := idem.Step(ctx, strings.Repeat("x", 101), e.step("s"), nil); return err },
			"control":    func() error { _, err := idem.Step(ctx, "a\nb", e.step("s"), nil); return err },
			"own":        func() error { _, err := idem.Step(ctx, "idem:undo:once", e.step("s"), nil); return err },
			"is nil":     func() error { _, err := idem.Step[int](ctx, "nil", nil, nil); return err },
			"chan": func() error {
				_, err := idem.Step(ctx, "c", func(context.Context) (chan int, error) { return nil, nil }, nil)
				return err
			},
			"do not nest": func() error {
				_, err := idem.Step(ctx, "outer", func(ctx context.Context) (int, error) {
					return idem.Step(ctx, "inner", func(context.Context) (int, error) { return 1, nil }, nil)
				}, nil)
				return err
			},
			"MaxTries is -1": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Retry: idem.Retry{MaxTries: -1}})
				return err
			},
			"delay": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Retry: idem.Retry{MaxTries: 3, MaxDelay: -1}})
				return err
			},
			"BackoffRate": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Retry: idem.Retry{MaxTries: 3, BackoffRate: 0.5}})
				return err
			},
			"Semantics is 7": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Semantics: 7})
				return err
			},
			"with its unit": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: 10, Interrupted: e.found("s")})
				return err
			},
			"no MaxTries": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Retry: idem.Retry{MaxDelay: time.Second}})
				return err
			},
			"NotFoundFinalAfter is missing": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce, Interrupted: e.found("s")})
				return err
			},
			"no meaning without Interrupted": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately})
				return err
			},
			"cannot be negative": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: -time.Minute, Interrupted: e.found("s")})
				return err
			},
			"just run again": func() error {
				_, err := idem.Step(ctx, "r", e.step("s"), &idem.StepConfig[receiptOf]{NotFoundFinalAfter: idem.Immediately, Interrupted: e.found("s")})
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
	_, err = idem.Step(escaped, "late", e.step("s"), nil)
	require.ErrorContains(t, err, "the handler has returned")
}

// Nobody would be asked after a crash. Whoever declares that learns it at the first call, before the
// step runs.
func TestInterruptedIsRefusedWhereNobodyWouldBeAsked(t *testing.T) {
	r, e := newRig(t, nil), new(effects)
	for name, tc := range map[string]struct {
		op   idem.Operation
		runs int
	}{
		"not repeatable": {unsafe, 0}, "repeatable": {safe, 1},
	} {
		_, err := doSteps(t, r, tc.op.Key("t", name), func(ctx context.Context) (string, error) {
			got, err := idem.Step(ctx, name, e.step(name), &idem.StepConfig[receiptOf]{
				Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately, Interrupted: e.found(name),
			})
			return got.ID, err
		})
		require.Equal(t, tc.runs, e.ran(name))
		if tc.runs == 0 {
			var mistake *idem.ConfigError
			require.ErrorAs(t, err, &mistake)
			require.ErrorContains(t, err, "Declare it idem.Repeatable")
			require.Empty(t, r.record(t, tc.op.Key("t", name)).Steps)
			continue
		}
		require.NoError(t, err)
	}
}
