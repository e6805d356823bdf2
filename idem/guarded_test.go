package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// unitless is a store that commits no unit of work, as dynamostore without transactions.
type unitless struct{ *memstore.Store }

func (unitless) Traits() protocol.Traits {
	return protocol.Traits{NoUnits: fmt.Errorf("no units here: %w", errors.ErrUnsupported)}
}

// What a store cannot commit is refused before the handler runs, through all guards.
func TestAStoreThatCommitsNoUnitsIsAskedFirst(t *testing.T) {
	e, err := idem.New(unitless{memstore.New()}, nil)
	require.NoError(t, err)
	t.Run("atomic mode", func(t *testing.T) {
		op := idem.Operation{Name: "atomic", Repeat: idem.Repeatable, Mode: idem.Atomic}
		ran := false
		_, err := idem.Do(t.Context(), e, op.Key("t", "k"), 1, func(context.Context, int) (int, error) { ran = true; return 1, nil })
		require.False(t, ran, "it must be refused before the handler runs")
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
	t.Run("a handler that asks for its unit", func(t *testing.T) {
		_, err := idem.Do(t.Context(), e, unsafe.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.UnitOf(ctx, func() idem.Unit { t.Error("it is made"); return sealable{} })
			return 1, err
		})
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

// The record of a shadow that is parked while its handler still runs expires.
func TestAShadowOfAHandlerPastItsDeadlineExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ctx := idem.WithKillTime(t.Context(), time.Now().Add(4*time.Second))
		_, _ = idem.Do(ctx, r.engine, inShadow(unsafe).Key("t", "k"), 1, func(context.Context, int) (int, error) {
			time.Sleep(3900 * time.Millisecond)
			for _, rec := range r.mem.Records() {
				require.False(t, rec.ExpiresAt.IsZero(), "%s has no expiry", rec.State)
			}
			return 1, nil
		})
	})
}

// An outcome of a short retention may be deleted within the time for which a withdrawal would be
// remembered: nothing but a withdrawal of its own keeps a claim out then.
func TestAWithdrawalIsNotRememberedForAShortRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op := idem.Operation{Name: "short", Retention: 3 * time.Second}
		r := newRig(t, nil)
		key := op.Key("t", "k")
		r.clock.Advance(500 * time.Millisecond) // no whole second, at which the hour is not over it
		// One claim in doubt is taken back: there is a record for an hour.
		r.faults.Next(idemtest.Acquire, idemtest.LoseRequest)
		_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, new(counter).run)
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		// Another process runs the key.
		_, err = idem.Do(inLambda(t.Context()), r.elsewhere(t).engine, key, 1, new(counter).run)
		require.NoError(t, err)
		// It has expired, and a claim of the first process finds TTL at work, or nothing.
		r.clock.Advance(10 * time.Second)
		time.Sleep(10 * time.Second)
		r.mem.Delete(key.ID())
		var claim *idemtest.Call
		r.faults.Next(idemtest.Acquire, idemtest.Hold(&claim))
		_, err = idem.Do(inLambda(t.Context()), r.engine, key, 1, new(counter).run)
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.NoError(t, r.engine.Flush(t.Context()))
		r.clock.Advance(10 * time.Minute)
		require.Error(t, claim.Do(t.Context()), "the claim that was taken back lands over nothing")
		_, err = idem.Do(inLambda(t.Context()), r.engine, key, 1, new(counter).run)
		require.NoError(t, err)
	})
}

// sealable is a unit of work with nothing in it.
type sealable struct{ protocol.Unit }

func (sealable) Seal() bool { return false }

// A withdrawal meets an expired record, and the refusal does not show it. TTL deletes that, and
// the claim lands before the withdrawal reads what stands in its way: its own claim, which it takes
// for another one's, and leaves.
func TestAWithdrawalThatMeetsItsOwnClaimTakesItBack(t *testing.T) {
	for _, op := range both {
		t.Run(op.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, key := newRig(t, nil), op.Key("t", "k")
				leftExpired(t, r, key)
				var claim *idemtest.Call
				r.faults.Next(idemtest.Acquire, idemtest.Hold(&claim))
				r.faults.Next(idemtest.Withdraw, func(ctx context.Context, c *idemtest.Call) error {
					require.Error(t, c.Do(ctx))
					r.mem.Delete(key.ID())
					require.NoError(t, claim.Do(ctx))
					return &protocol.ConflictError{} // whatever stands between has not passed the item on
				})
				_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, new(counter).run)
				require.ErrorIs(t, err, idem.ErrStoreUnavailable)
				require.NoError(t, r.engine.Flush(t.Context()))
				require.NotEqual(t, idem.InProgress, r.state(t, key), "nothing runs, and withdrawn is told")
			})
		})
	}
}

// What is left of a claim in doubt of a call in shadow has no value of the caller's.
func TestAWithdrawnShadowKeepsNoValue(t *testing.T) {
	r := newRig(t, nil)
	op := inShadow(safe)
	op.Values = idem.KeepValues
	r.faults.Next(idemtest.Acquire, idemtest.LoseReply)
	_, err := idem.Do(t.Context(), r.engine, op.Key("t", "somebody@example.com"), 1, new(counter).run)
	require.NoError(t, err)
	for _, rec := range r.mem.Records() {
		require.Empty(t, rec.Value)
		require.False(t, rec.ExpiresAt.IsZero())
	}
}

// A call that fails open and has no time left for its handler reports that alone.
func TestFailingOpenIsReportedIfTheHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		op := failsOpen
		op.MinTime = 3 * time.Second
		r.faults.Next(idemtest.Acquire, idemtest.BlackHole)
		r.faults.Next(idemtest.Withdraw, idemtest.BlackHole)
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		c := new(counter)
		_, err := idem.Do(ctx, r.engine, op.Key("t", "k"), 1, c.run)
		require.Error(t, err)
		require.Zero(t, c.count())
		require.NotContains(t, r.events.take(), "failed_open")
	})
}
