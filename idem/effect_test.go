package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

func TestEffectRunsOnce(t *testing.T) {
	for name, end := range map[string]error{"done": nil, "failed": idem.Permanent(errPlain)} {
		t.Run(name, func(t *testing.T) {
			r, runs := newRig(t, nil), 0
			for n := range 2 {
				err := idem.DoEffect(t.Context(), r.engine, safe.Key("t", "k"), "parcel", func(_ context.Context, in string) error {
					require.Equal(t, "parcel", in)
					runs++
					return end
				})
				require.Equal(t, end == nil, err == nil, "call %d: %v", n, err)
			}
			require.Equal(t, 1, runs)
		})
	}
}

// A step without a result is skipped, undone and asked about like one that has one.
func TestStepEffect(t *testing.T) {
	r, key := newRig(t, nil), safe.Key("t", "k")
	var log []string
	says := func(what string, err error) func(context.Context) error {
		return func(context.Context) error { log = append(log, what); return err }
	}
	handler := func(ctx context.Context) (string, error) {
		if err := idem.StepEffect(ctx, "reserve", says("reserve", nil), &idem.EffectConfig{Compensate: says("undo reserve", nil)}); err != nil {
			return "", err
		}
		err := idem.StepEffect(ctx, "charge", says("charge", errPlain), &idem.EffectConfig{
			Semantics: idem.AtMostOnce, Compensate: says("undo charge", nil), NotFoundFinalAfter: idem.Immediately,
			Interrupted: func(ctx context.Context, began time.Time) error {
				require.False(t, began.IsZero())
				return says("ask", nil)(ctx)
			},
		})
		if err != nil {
			return "", err
		}
		return "", idem.PermanentStep(idem.StepEffect(ctx, "ship", says("ship", idem.Permanent(errPlain)), nil))
	}
	killed(t, r, key)
	begun := protocol.StepWrite{ID: key.ID(), Owner: r.record(t, key).Owner, Write: "w", Name: "charge", Begin: true}
	require.NoError(t, r.mem.RecordStep(t.Context(), r.clock.Now(), begun))
	r.clock.Advance(time.Minute)
	_, err := doSteps(t, r, key, handler)
	require.ErrorIs(t, err, errPlain)
	require.Equal(t, idem.Failed, r.state(t, key))
	require.Equal(t, []string{"reserve", "ask", "ship", "undo charge", "undo reserve"}, log)
}

func TestEffectWithoutAFunctionIsRefused(t *testing.T) {
	r := newRig(t, nil)
	var mistake *idem.ConfigError
	require.ErrorAs(t, idem.DoEffect[int](t.Context(), r.engine, safe.Key("t", "k"), 1, nil), &mistake)
	_, err := doSteps(t, r, safe.Key("t", "k"), func(ctx context.Context) (string, error) {
		require.ErrorAs(t, idem.StepEffect(ctx, "reserve", nil, nil), &mistake)
		return "", nil
	})
	require.NoError(t, err)
}
