package later_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Work that waits has had no attempt: its worker's is the first.
func TestAnAcceptanceIsNoAttempt(t *testing.T) {
	d := newDesk(t)
	key := statement.Key("acme", "june")
	d.accepted(key, 3)
	require.Zero(t, d.Record(key).Attempt)
	require.Equal(t, 1, d.work(statement, key.ID(), nil).Value.Outcome.Attempt)
}

// Work waits for as long as the call that has accepted it says.
func TestWorkWaitsForAsLongAsItsCallSays(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{0: later.DefaultStartWithin,
		24 * time.Hour: 24 * time.Hour} {
		d := newDesk(t)
		key := statement.Key("acme", "june")
		call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil)}
		_, err := d.Engine.Execute(t.Context(),
			later.Call(call, protocol.Later{Input: []byte("3"), StartWithin: within}, nil))
		require.NoError(t, err)
		rec := d.Record(key)
		require.WithinDuration(t, rec.CreatedAt.Add(want), rec.Due, time.Second)
	}
}

// The message of work that is cancelled may still come when a short retention is over.
func TestACancellationStaysForAMinuteAtLeast(t *testing.T) {
	d := newDesk(t)
	op := idem.Operation{Name: statement.Name, Retention: time.Second}
	key := op.Key("acme", "june")
	id := d.accepted(key, 3)
	require.NoError(t, d.cancel(id))
	rec := d.Record(key)
	require.GreaterOrEqual(t, rec.ExpiresAt.Sub(rec.UpdatedAt), time.Minute)
}
