package idem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// A claim on an expired record, withdrawn before or after it landed, must not
// hand the expired record's steps to the next attempt: it would skip them.
func TestWithdrawnReplacementKeepsNothingOfTheExpiredRecord(t *testing.T) {
	expired := &idem.Record{
		ID: "t#op#x", State: idem.Completed, Repeat: idem.Repeatable, Fingerprint: "1:old",
		Owner: "old", Write: "w-old", Attempt: 1, CreatedAt: instant.Add(-time.Hour), ExpiresAt: instant.Add(-time.Minute),
		Steps: map[string]idem.Step{"charge": {Write: "w-step", Result: []byte("done")}},
	}
	claim := idem.Claim{Seen: "w-old", Replace: true, Record: idem.Record{
		ID: "t#op#x", State: idem.InProgress, Repeat: idem.Repeatable, Fingerprint: "1:new",
		Owner: "new", Write: "w-new", Attempt: 2, CreatedAt: instant, UpdatedAt: instant, LeaseUntil: instant.Add(time.Minute),
	}}
	landed, err := claim.Apply(expired, instant)
	require.NoError(t, err)
	w := idem.Withdrawal{Claim: claim, Owner: "nobody", Write: "w-back", ExpiresAt: instant.Add(time.Hour)}
	for name, rec := range map[string]*idem.Record{"not landed": expired, "landed": landed, "deleted": nil} {
		t.Run(name, func(t *testing.T) {
			got, err := w.Apply(rec, instant)
			require.NoError(t, err)
			require.Equal(t, idem.Retryable, got.State)
			require.Equal(t, idem.Fingerprint("1:new"), got.Fingerprint)
			require.Empty(t, got.Steps)
			require.Equal(t, instant, got.CreatedAt)
			require.False(t, got.Open(), "what carries an expiry must not be an open question")
		})
	}
}
