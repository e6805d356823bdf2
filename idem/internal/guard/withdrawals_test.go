package guard

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// countedStore has one record, and counts the withdrawals that it refuses.
type countedStore struct {
	protocol.Store
	rec  *protocol.Record
	sent int
}

func (s *countedStore) Withdraw(_ context.Context, _ time.Time, w protocol.Withdrawal) error {
	s.sent++
	if s.rec != nil && s.rec.HeldBy(w.Claim.Record.Owner) {
		s.rec = nil // the claim is taken back
		return nil
	}
	return &protocol.ConflictError{Existing: s.rec}
}

// A record keeps out every claim but the one that it is: that one's withdrawal is sent.
func TestARememberedRecordDoesNotKeepItsOwnClaimOut(t *testing.T) {
	now := time.Now()
	of := func(owner string) protocol.Withdrawal {
		return protocol.Withdrawal{Owner: "w-" + owner, Write: "w-" + owner, Claim: protocol.Claim{Record: protocol.Record{
			ID: "t#op#k", State: protocol.InProgress, Owner: owner, Write: owner, Retention: time.Hour, LeaseUntil: now.Add(time.Minute),
		}}}
	}
	landed := of("first").Claim.Record
	below := &countedStore{rec: &landed}
	s := Withdrawals(below, time.Second)
	require.Error(t, s.Withdraw(t.Context(), now, of("second")))
	require.Error(t, s.Withdraw(t.Context(), now, of("third")))
	require.Equal(t, 1, below.sent, "the first one's record is remembered")
	require.NoError(t, s.Withdraw(t.Context(), now, of("first")))
	require.Equal(t, 2, below.sent)
}
