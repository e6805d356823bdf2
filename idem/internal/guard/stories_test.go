package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// firstClaim is one of the owner that saw no record.
func firstClaim(owner string, now time.Time) protocol.Claim {
	return protocol.Record{
		ID: "t#op#k", State: protocol.InProgress, Owner: owner, Write: owner, Attempt: 1,
		LeaseUntil: now.Add(30 * time.Second), Retention: 24 * time.Hour, CreatedAt: now, UpdatedAt: now,
	}.Over(nil, protocol.DoCreate, protocol.WatchNotRepeatable, 2*time.Second)
}

// While an outcome waits, no other call makes an open question of its operation.
func TestNoQuestionIsMadeOfAnOutcomeThatWaits(t *testing.T) {
	now := time.Now()
	faults := idemtest.NewFaults(memstore.New())
	p := guard.NewPending(faults, time.Now, time.Minute, silent)
	require.NoError(t, p.Acquire(t.Context(), now, firstClaim("a", now)))
	end := &guard.End{Recorded: now, Retention: time.Hour, Attempt: 1, Finish: protocol.Finish{
		ID: "t#op#k", Owner: "a", Write: "end",
		Ending: protocol.Ending{State: protocol.Failed, Failure: &protocol.Failure{Message: "declined"}},
	}}
	fits, _ := p.Keep(t.Context(), end, false, nil)
	require.True(t, fits)

	later := now.Add(time.Hour)
	err := p.Settle(t.Context(), later, protocol.Settlement{
		ID: "t#op#k", Kind: protocol.EventLapse, Seen: "a", Owner: "b", Write: "b",
		Ending: protocol.Ending{State: protocol.Unknown},
	})
	require.ErrorAs(t, err, new(*protocol.ConflictError))
	require.NotContains(t, faults.Calls(), idemtest.Settle)
	rec, err := p.Get(t.Context(), "t#op#k")
	require.NoError(t, err)
	require.Equal(t, protocol.Failed, rec.State)
}

// A wall clock that is set back does not make a claim of this process last for longer.
func TestAHeldClaimEndsByTheMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := idemtest.NewFaults(memstore.New())
		s := guard.Holding(faults)
		now := time.Now()
		require.NoError(t, s.Acquire(t.Context(), now, firstClaim("a", now)))
		for _, asks := range []int{0, 1} {
			faults.Reset()
			require.ErrorAs(t, s.Acquire(t.Context(), now, firstClaim("b", now)), new(*protocol.ConflictError))
			require.Len(t, faults.Calls(), asks)
			time.Sleep(30 * time.Second)
		}
	})
}

// A record that may be deleted before a late claim arrives does not keep it out: each such claim is
// taken back.
func TestARecordThatExpiresSoonKeepsNoClaimOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		s := guard.Withdrawals(mem, 2*time.Second)
		now := time.Now()
		require.NoError(t, s.Acquire(t.Context(), now, firstClaim("a", now)))
		require.NoError(t, s.Finish(t.Context(), now,
			protocol.Finish{ID: "t#op#k", Owner: "a", Write: "end", Ending: protocol.Ending{
				State: protocol.Failed, Failure: &protocol.Failure{Message: "declined"}, ExpiresAt: now.Add(20 * time.Second),
			}}))
		require.ErrorAs(t, s.Withdraw(t.Context(), now, withdrawalOf(firstClaim("b", now))), new(*protocol.ConflictError))

		time.Sleep(30 * time.Second)
		mem.Delete("t#op#k") // by TTL
		now = time.Now()
		late := firstClaim("c", now)
		require.NoError(t, s.Withdraw(t.Context(), now, withdrawalOf(late)))
		require.Error(t, mem.Acquire(context.Background(), now, late), "it comes too late")
	})
}

// A record keeps out every claim but the one that it is: that one's withdrawal is sent.
func TestARememberedRecordDoesNotKeepItsOwnClaimOut(t *testing.T) {
	mem, now := memstore.New(), time.Now()
	landed := firstClaim("a", now)
	require.NoError(t, mem.Acquire(t.Context(), now, landed))
	faults := idemtest.NewFaults(mem)
	s := guard.Withdrawals(faults, time.Second)
	for _, owner := range []string{"b", "c"} {
		require.Error(t, s.Withdraw(t.Context(), now, withdrawalOf(firstClaim(owner, now))))
	}
	require.Len(t, faults.Calls(), 1, "the first one's record is remembered")
	require.NoError(t, s.Withdraw(t.Context(), now, withdrawalOf(landed)))
	require.Len(t, faults.Calls(), 2)
}

func withdrawalOf(c protocol.Claim) protocol.Withdrawal {
	return protocol.Withdrawal{Claim: c, Write: "withdrawal of " + c.Record.Owner}
}

// A store that refuses requests, such as for want of a permission, can be reached.
func TestRefusalsOpenNoCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := idemtest.NewFaults(memstore.New())
		s := guard.Circuit(faults, func(_ context.Context, kind notice.Kind, _ string, _ notice.Notice) { t.Error(kind) })
		faults.Always(idemtest.Deny)
		for range 20 {
			_, err := s.Get(t.Context(), "t#op#k")
			var failed *protocol.StoreError
			require.ErrorAs(t, err, &failed)
			require.False(t, failed.Down)
		}
		require.Len(t, faults.Calls(), 20)
	})
}
