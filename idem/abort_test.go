package idem_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// Nothing is undone whose mark may be missing in the record: without it the next attempt
// would take the step for done and complete over it.
func TestNothingIsUndoneWithoutAMarkInTheRecord(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"request lost": idemtest.LoseRequest, "reply lost": idemtest.LoseReply} {
		t.Run(name, func(t *testing.T) {
			r, e := newRig(t, nil), new(effects)
			key := safe.Key("t", "k")
			pay := &idem.StepConfig[receiptOf]{Compensate: e.undo("charge")}
			_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
				_, err := idem.Step(ctx, "charge", e.step("charge"), pay)
				require.NoError(t, err)
				r.faults.Next(idemtest.RecordStep, fault)
				for range 2 { // the second one with the mark in mind
					err = idem.Abort(context.WithoutCancel(ctx), declinedError{})
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
				}
				return "", err
			})
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Zero(t, e.ran("undo charge"))
			require.Equal(t, idem.Released, r.state(t, key))

			_, err = doSteps(t, r, key, func(ctx context.Context) (string, error) {
				_, err := idem.Step(ctx, "charge", e.step("charge"), pay)
				return "paid", err
			})
			if name == "request lost" {
				require.NoError(t, err, "nothing was undone: it goes on")
				require.Equal(t, []int{1, 0}, e.all("charge", "undo charge"))
			} else {
				require.EqualError(t, err, "card declined", "the mark has landed")
				require.Equal(t, []int{1, 1}, e.all("charge", "undo charge"))
			}
		})
	}
}
