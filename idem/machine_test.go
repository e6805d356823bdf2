package idem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// An attempt without a claim whose first write had landed after all, and which a
// not repeatable twin has parked, must not make itself repeatable again: the
// record would expire, and the next call would run.
func TestFinishOpenDoesNotReopenWhatAStricterTwinParked(t *testing.T) {
	parked := &idem.Record{
		ID: "t#op#x", State: idem.Unknown, Repeat: idem.NotRepeatable, Owner: "open", Write: "w-lapse",
		Attempt: 1, LeaseUntil: t0.Add(-time.Minute),
	}
	end := idem.Finish{
		ID: "t#op#x", Owner: "open", Write: "w-end", Absent: &idem.Record{ID: "t#op#x"},
		Ending: idem.Ending{State: idem.Retryable, Uncertain: true, ExpiresAt: t0.Add(time.Hour)},
	}
	_, err := end.Apply(parked, t0)
	var conflict *idem.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, parked, conflict.Existing)

	end.Ending.Uncertain = false
	got, err := end.Apply(parked, t0)
	require.NoError(t, err)
	require.Equal(t, idem.Retryable, got.State)
}
