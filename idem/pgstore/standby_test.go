package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// A claim that no standby has is not confirmed, although it is there: Postgres has ended the wait for the standby when
// the time of a try was over.
func TestAClaimWithoutItsStandbyIsNotConfirmed(t *testing.T) {
	s, pool := openURL(t, postgres.Start(t).URL())
	exec := func(all ...string) {
		t.Helper()
		for _, sql := range all {
			_, err := pool.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
	}
	exec("CREATE TABLE waits (id text)")
	exec("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := pool.Exec(ctx, "INSERT INTO waits VALUES ('a')")
		return err != nil
	}, time.Minute, time.Millisecond)

	now := time.Now()
	claim := protocol.Claim{Record: protocol.Record{ID: "acme#op#a", State: idem.InProgress, Owner: "a", Write: "a",
		Attempt: 1, LeaseUntil: now.Add(time.Minute), CreatedAt: now, UpdatedAt: now}}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	failed := new(protocol.StoreError)
	require.ErrorAs(t, s.Acquire(ctx, now, claim), &failed)
	require.True(t, failed.Ambiguous)
	require.Eventually(t, func() bool {
		rec, err := s.Get(t.Context(), claim.Record.ID)
		return err == nil && rec != nil
	}, time.Minute, time.Millisecond)
	exec("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool { return s.Acquire(t.Context(), now, claim) == nil }, time.Minute, time.Millisecond)
}
