package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// killedWith leaves a claim, whose process is gone, with recorded steps.
func killedWith(t *testing.T, r *rig, key idem.Key, steps ...protocol.StepWrite) {
	t.Helper()
	killed(t, r, key)
	for _, s := range steps {
		rec := r.record(t, key)
		s.ID, s.Owner, s.Write = rec.ID, rec.Owner, rec.Owner[:11]+"."+s.Name
		require.NoError(t, r.mem.RecordStep(t.Context(), r.clock.Now(), s))
	}
	r.clock.Advance(time.Hour)
}

var (
	charged  = protocol.StepWrite{Name: "charge", Result: []byte("done")}
	shipping = protocol.StepWrite{Name: "ship", Begin: true}
)

// A takeover keeps the record's identity and steps, and shows the same outcome live
// as on replay.
func TestTakeoverKeepsIdentityAndSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		op := safe
		op.Values = idem.KeepValues
		key := op.Key("t", "k")
		killedWith(t, r, key, charged)
		before := r.record(t, key)
		live, err := idem.Run(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
			rec := r.record(t, key)
			require.Equal(t, 2, rec.Attempt)
			require.Equal(t, before.Steps, rec.Steps)
			require.Equal(t, "k", rec.Value)
			require.Zero(t, rec.ExpiresAt, "a record with steps waits for its next attempt")
			return 1, nil
		})
		require.NoError(t, err)
		replay, err := idem.Run(t.Context(), r.engine, key, 1, new(counter).run)
		require.NoError(t, err)
		require.Equal(t, before.CreatedAt, live.Outcome.CreatedAt)
		live.Outcome.Executed, live.Outcome.Replayed, live.Outcome.AttemptState = false, true, ""
		require.Equal(t, live.Outcome, replay.Outcome)
	})
}

// Taken back, or ended for another try, a record with steps is an open question:
// it never expires.
func TestReleasedWithStepsIsKept(t *testing.T) {
	for name, lose := range map[string]bool{"withdrawn": true, "released": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			key := safe.Key("t", "k")
			killedWith(t, r, key, charged)
			if lose {
				r.faults.Next(idemtest.Acquire, idemtest.Pass, idemtest.LoseReply)
			}
			_, err := idem.Do(t.Context(), r.engine, key, 1, fails(errPlain))
			require.Error(t, err)
			rec := r.record(t, key)
			require.Equal(t, idem.Released, rec.State)
			require.Len(t, rec.Steps, 1)
			require.Zero(t, rec.ExpiresAt)
			require.True(t, rec.Uncertain)
		})
	}
}

// An open at-most-once step parks what is not repeatable; resolving it to
// released closes the step and keeps the others.
func TestInterruptedStepParks(t *testing.T) {
	r, c := newRig(t, nil), new(counter)
	key := unsafe.Key("t", "k")
	killedWith(t, r, key, charged, shipping)
	_, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
	require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
	require.Zero(t, c.count())
	require.NoError(t, r.resolve(t, key.ID(), reconcile.Resolution{
		To: idem.Released, Steps: map[string]reconcile.Answer{"ship": reconcile.NotExecuted()},
	}))
	rec := r.record(t, key)
	require.Len(t, rec.Steps, 1)
	require.Contains(t, rec.Steps, "charge")
	require.Zero(t, rec.ExpiresAt)
	_, err = idem.Do(t.Context(), r.engine, key, 1, c.run)
	require.NoError(t, err)
	require.Equal(t, 1, c.count())
}
