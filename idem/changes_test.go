package idem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

var t0 = time.Date(2030, 5, 6, 7, 8, 9, 123e6, time.UTC)

// A claim on an expired record, withdrawn before or after it landed, must not
// hand the expired record's steps to the next attempt: it would skip them.
func TestWithdrawnReplacementKeepsNothingOfTheExpiredRecord(t *testing.T) {
	expired := &idem.Record{
		ID: "t#op#x", State: idem.Completed, Repeat: idem.Repeatable, Fingerprint: "1:old",
		Owner: "old", Write: "w-old", Attempt: 1, CreatedAt: t0.Add(-time.Hour), ExpiresAt: t0.Add(-time.Minute),
		Steps: map[string]idem.Step{"charge": {Write: "w-step", Result: []byte("done")}},
	}
	claim := idem.Claim{Seen: "w-old", Replace: true, Record: idem.Record{
		ID: "t#op#x", State: idem.InProgress, Repeat: idem.Repeatable, Fingerprint: "1:new",
		Owner: "new", Write: "w-new", Attempt: 2, CreatedAt: t0, UpdatedAt: t0, LeaseUntil: t0.Add(time.Minute),
	}}
	landed, err := claim.Apply(expired, t0)
	require.NoError(t, err)
	w := idem.Withdrawal{Claim: claim, Owner: "nobody", Write: "w-back", ExpiresAt: t0.Add(time.Hour)}
	for name, rec := range map[string]*idem.Record{"not landed": expired, "landed": landed, "deleted": nil} {
		t.Run(name, func(t *testing.T) {
			got, err := w.Apply(rec, t0)
			require.NoError(t, err)
			require.Equal(t, idem.Retryable, got.State)
			require.Equal(t, idem.Fingerprint("1:new"), got.Fingerprint)
			require.Empty(t, got.Steps)
			require.Equal(t, t0, got.CreatedAt)
			require.False(t, got.Open(), "what carries an expiry must not be an open question")
		})
	}
}
