package sweeping

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

func TestInvocationFailsIfNothingCouldBeDone(t *testing.T) {
	h := idemtest.New(t, nil)
	reconciler, err := reconcile.New(h.Faults, nil)
	require.NoError(t, err)
	sweeper, err := reconcile.NewSweeper(reconciler, nil)
	require.NoError(t, err)
	f := &function{sweeper}
	require.NoError(t, f.handle(t.Context()))
	h.Faults.Always(idemtest.Deny, idemtest.Due)
	require.EqualError(t, f.handle(t.Context()), "nothing could be done: idem: store: Due: idemtest: denied")
}

func none(idem.Store) ([]reconcile.Operation, error) { return nil, nil }

func TestEnvironment(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv(schema.EnvTable, "records")
	t.Setenv(schema.EnvSweepPeople, "https://sqs.eu-central-1.amazonaws.com/111122223333/people")
	for segments, says := range map[string]string{"": "", "60": "", "0": "use a whole number from 1", "many": "use a whole number from 1", "1000001": "at most 1000000"} {
		t.Setenv(schema.EnvSweepSegments, segments)
		_, err := open(t.Context(), none)
		if says == "" {
			require.NoError(t, err, segments)
		} else {
			require.ErrorContains(t, err, says)
		}
	}
	t.Setenv(schema.EnvSweepSegments, "")
	t.Setenv(schema.EnvSweepPeople, "people")
	_, err := open(t.Context(), none)
	require.ErrorContains(t, err, "is not a queue URL")
}
