package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// resolve resolves as a person would, with a reconciler of its own.
func (r *rig) resolve(t *testing.T, id string, res reconcile.Resolution) error {
	t.Helper()
	rc, err := reconcile.New(r.faults, &reconcile.Options{Now: r.clock.Now})
	require.NoError(t, err)
	by := reconcile.Change{Actor: "alice", Reason: "the provider says so"}
	if res.Replace {
		rec, err := rc.Lookup(t.Context(), id)
		require.NoError(t, err)
		by.IfWrite = rec.Write
	}
	return rc.Resolve(t.Context(), id, res, by)
}

// encoded is JSON as later calls read it, or are said to.
func encoded(body string) *protocol.Encoded { return &protocol.Encoded{Body: []byte(body)} }

// parked leaves the key unknown.
func parked(t *testing.T, r *rig, key idem.Key) {
	t.Helper()
	errs(t, r, key, fails(errPlain))
	require.Equal(t, idem.Unknown, r.state(t, key))
	r.events.take()
	r.faults.Reset()
}

func TestResolveRefuses(t *testing.T) {
	r := newRig(t, nil)
	done := unsafe.Key("t", "done")
	must(t, r, done, new(counter).run)
	var config *idem.ConfigError
	yes := reconcile.Resolution{To: idem.Completed, Result: encoded("1")}
	require.ErrorIs(t, r.resolve(t, "nobody", yes), reconcile.ErrNotFound)
	require.ErrorIs(t, r.resolve(t, done.ID(), yes), reconcile.ErrNotUnknown)
	r.faults.Reset()
	for _, bad := range []reconcile.Resolution{
		{}, {To: idem.Unknown}, {To: idem.InProgress}, {To: idem.Failed},
		{To: idem.Failed, Failure: &idem.Failure{}, Result: encoded("1")}, {To: idem.Released, Result: encoded("1")},
		{To: idem.Completed, Result: encoded("receipt 7")}, {To: idem.Completed, Result: encoded("")},
		{To: idem.Released, CompensatedManually: true},
		{To: idem.Completed, Result: &protocol.Encoded{Body: []byte("1"), Check: func([]byte) error { return errPlain }}},
	} {
		require.ErrorAs(t, r.resolve(t, done.ID(), bad), &config)
	}
	require.Empty(t, r.faults.Calls())
	r.faults.Next(idemtest.Get, idemtest.Unreadable, idemtest.Refuse)
	require.ErrorIs(t, r.resolve(t, done.ID(), yes), idem.ErrRecordUnreadable)
	require.ErrorIs(t, r.resolve(t, done.ID(), yes), idem.ErrStoreUnavailable)
}

// The retention of a resolution counts from the try that lands.
func TestRetentionOfAResolutionCountsFromItsLastTry(t *testing.T) {
	inBubble(t, idem.Operation{Name: "short", Retention: time.Minute}, func(t *testing.T, r *rig, key idem.Key) {
		uncertainly(t, r, key)
		r.faults.Next(idemtest.Settle, slow(50*time.Second, idemtest.LoseRequest))
		require.NoError(t, r.resolve(t, key.ID(), reconcile.Resolution{To: idem.Completed, Result: encoded("1")}))
		rec := r.record(t, key)
		require.WithinDuration(t, rec.UpdatedAt.Add(time.Minute), rec.ExpiresAt, time.Second)
		require.WithinDuration(t, time.Now(), rec.UpdatedAt, time.Millisecond)
	})
}

// Two resolvers, and a resolver against the late outcome: one of them resolves it,
// the other is told.
func TestResolveRaces(t *testing.T) {
	for name, other := range map[string]func(t *testing.T, r *rig, key idem.Key){
		"resolver": func(t *testing.T, r *rig, key idem.Key) {
			require.NoError(t, r.elsewhere(t).resolve(t, key.ID(),
				reconcile.Resolution{To: idem.Completed, Result: encoded("7")}))
		},
		"late outcome": func(t *testing.T, r *rig, key idem.Key) {
			rec := r.record(t, key)
			require.NoError(t, r.mem.Finish(t.Context(), r.clock.Now(), protocol.Finish{
				ID: rec.ID, Owner: rec.Owner, Write: "late",
				Ending: protocol.Ending{State: idem.Completed, Result: []byte("7"), ExpiresAt: r.clock.Now().Add(time.Hour)},
			}))
		},
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			parked(t, r, key)
			r.faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
				other(t, r, key)
				return c.Do(ctx)
			})
			err := r.resolve(t, key.ID(), reconcile.Resolution{To: idem.Completed, Result: encoded("8")})
			require.ErrorIs(t, err, reconcile.ErrNotUnknown)
			require.Equal(t, 7, must(t, r, key, new(counter).run))
		})
	}
}

// Resolved first, the parked attempt's own outcome changes nothing any more, and
// its caller gets what was recorded.
func TestResolvedFirstBeatsTheLateOutcome(t *testing.T) {
	r, key := rigOn(t, unsafe)
	v := must(t, r, key, func(context.Context, int) (int, error) {
		r.clock.Advance(time.Hour)
		require.NoError(t, r.elsewhere(t).resolve(t, key.ID(),
			reconcile.Resolution{To: idem.Completed, Result: encoded("7")}))
		return 8, nil
	})
	require.Equal(t, 7, v)
	require.Contains(t, r.events.take(), "lease_lost")
}
