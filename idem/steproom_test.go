package idem_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// A step for which there might be no room does not run, and what came before it can
// still be undone.
func TestStepsBeyondTheRoom(t *testing.T) {
	long := strings.Repeat("n", 90) // fewer steps fill the room
	for name, result := range map[string]string{"small": "", "large": strings.Repeat("x", 2000)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			key := safe.Key("t", "k")
			var last string
			ran, undone := 0, 0
			handler := func(end func(error) error) func(context.Context) (string, error) {
				return func(ctx context.Context) (string, error) {
					for n := 0; ; n++ {
						last = fmt.Sprintf("%s-%d", long, n)
						_, err := idem.Step(ctx, last, func(context.Context) (string, error) { ran++; return result, nil },
							idem.WithCompensation(func(context.Context, string) error { undone++; return nil }))
						if err != nil {
							return "", end(err)
						}
					}
				}
			}
			_, err := doSteps(t, r, key, handler(func(err error) error { return err }))
			require.ErrorIs(t, err, idem.ErrStepLimit)
			var limit *idem.StepLimitError
			require.ErrorAs(t, err, &limit)
			require.Equal(t, last, limit.Name)
			require.LessOrEqual(t, limit.Taken, limit.Limit)
			require.Equal(t, idem.StepRoom, limit.Limit)
			require.Greater(t, ran, 300)
			require.NotContains(t, r.record(t, key).Steps, last)
			require.Equal(t, idem.Retryable, r.state(t, key))
			before, where := ran, last

			_, err = doSteps(t, r, key, handler(idem.Permanent))
			require.ErrorIs(t, err, idem.ErrStepLimit)
			require.Equal(t, where, last, "the same one in every attempt")
			require.Equal(t, before, ran)
			require.Equal(t, ran, undone)
			require.Equal(t, idem.Failed, r.state(t, key))
		})
	}
}

// Errors that are steps' outcomes are cut where there is room for no more.
func TestErrorsOfStepsDoNotFillTheRecord(t *testing.T) {
	r := newRig(t, nil)
	key := safe.Key("t", "k")
	taken := 0
	_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
		for n := 0; ; n++ {
			_, err := idem.Step(ctx, fmt.Sprintf("step-%d", n), func(context.Context) (int, error) {
				return 0, idem.Permanent(fmt.Errorf("%s: %w", strings.Repeat("x", 1<<20), declinedError{}))
			})
			if _, full := err.(*idem.StepLimitError); full {
				break
			}
		}
		for name, s := range r.record(t, key).Steps {
			taken += 192 + len(name) + len(s.Failure.Message) + len(s.Failure.Type) + len(s.Failure.Code)
		}
		return "", nil
	})
	require.NoError(t, err)
	require.Greater(t, taken, idem.StepRoom*9/10)
	require.LessOrEqual(t, taken, idem.StepRoom)
}
