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
	_, err := idem.Do(t.Context(), r.engine, key, 1, fails(errPlain))
	require.Same(t, errPlain, err)
	require.Equal(t, idem.Unknown, r.state(t, key))
	r.events.take()
	r.faults.Reset()
}

func TestResolve(t *testing.T) {
	for _, tc := range []struct {
		name string
		to   reconcile.Resolution
		then func(t *testing.T, v int, err error)
		runs int
	}{
		{"completed", reconcile.Resolution{To: idem.Completed, Result: encoded("42"), Ref: "pay_1"}, func(t *testing.T, v int, err error) {
			require.NoError(t, err)
			require.Equal(t, 42, v)
		}, 0},
		{"completed, result not known", reconcile.Resolution{To: idem.Completed, Ref: "pay_1"}, func(t *testing.T, _ int, err error) {
			require.ErrorIs(t, err, idem.ErrOutcomeUnavailable)
		}, 0},
		{"failed", reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined", Code: "card"}, Ref: "pay_1"}, func(t *testing.T, _ int, err error) {
			var recorded *idem.RecordedError
			require.ErrorAs(t, err, &recorded)
			require.Equal(t, "card", recorded.Code)
		}, 0},
		{"released", reconcile.Resolution{To: idem.Released, Ref: "pay_1"}, func(t *testing.T, v int, err error) {
			require.NoError(t, err)
			require.Equal(t, 1, v)
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, c := newRig(t, nil), new(counter)
			key := unsafe.Key("t", "k")
			parked(t, r, key)
			owner := r.record(t, key).Owner
			r.clock.Advance(time.Hour)
			require.NoError(t, r.resolve(t, key.ID(), tc.to))
			rec := r.record(t, key)
			require.Equal(t, tc.to.To, rec.State)
			require.NotEqual(t, owner, rec.Owner)
			require.Equal(t, "pay_1", rec.Ref)
			require.WithinDuration(t, r.clock.Now().Add(idem.DefaultRetention), rec.ExpiresAt, 20*time.Second)
			require.Equal(t, []idemtest.Method{"Get", "Settle"}, r.faults.Calls())

			require.ErrorIs(t, r.resolve(t, key.ID(), tc.to), reconcile.ErrNotUnknown, "once")
			v, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
			tc.then(t, v, err)
			require.Equal(t, tc.runs, c.count())
		})
	}
}

func TestResolveToReleasedWaitsForTheLease(t *testing.T) {
	r := newRig(t, nil)
	key := unsafe.Key("t", "k")
	parked(t, r, key)
	retry := reconcile.Resolution{To: idem.Released}
	require.ErrorIs(t, r.resolve(t, key.ID(), retry), reconcile.ErrTooEarly)
	r.clock.Advance(idem.DefaultLease)
	require.ErrorIs(t, r.resolve(t, key.ID(), retry), reconcile.ErrTooEarly, "the margin counts")
	r.clock.Advance(idem.DefaultMargin + time.Millisecond)
	require.NoError(t, r.resolve(t, key.ID(), retry))
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
		{To: idem.Completed, Result: encoded("receipt 7")}, {To: idem.Completed, Result: encoded("")}, {To: idem.Released, CompensatedManually: true},
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		key := idem.Operation{Name: "short", Retention: time.Minute}.Key("t", "k")
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
			require.NoError(t, r.elsewhere(t).resolve(t, key.ID(), reconcile.Resolution{To: idem.Completed, Result: encoded("7")}))
		},
		"late outcome": func(t *testing.T, r *rig, key idem.Key) {
			rec := r.record(t, key)
			require.NoError(t, r.mem.Finish(t.Context(), r.clock.Now(), protocol.Finish{
				ID: rec.ID, Owner: rec.Owner, Write: "late", Ending: protocol.Ending{State: idem.Completed, Result: []byte("7"), ExpiresAt: r.clock.Now().Add(time.Hour)},
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			key := unsafe.Key("t", "k")
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
	r := newRig(t, nil)
	key := unsafe.Key("t", "k")
	v := must(t, r, key, func(context.Context, int) (int, error) {
		r.clock.Advance(time.Hour)
		require.NoError(t, r.elsewhere(t).resolve(t, key.ID(), reconcile.Resolution{To: idem.Completed, Result: encoded("7")}))
		return 8, nil
	})
	require.Equal(t, 7, v)
	require.Contains(t, r.events.take(), "lease_lost")
}

// What recorded steps have done is not forgotten by a failure that a person states.
func TestResolveToFailedAsksForUndoneSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		steps []protocol.StepWrite
		due   []string
	}{
		"none undone": {[]protocol.StepWrite{
			{Name: "b", Result: []byte("1"), Compensates: true}, {Name: "a", Result: []byte("1"), Compensates: true}, {Name: "c", Result: []byte("1")},
		}, []string{"a", "b"}},
		"one undone": {[]protocol.StepWrite{
			{Name: "b", Result: []byte("1"), Compensates: true}, {Name: "a", Result: []byte("1"), Compensates: true},
			{Name: "idem:undo:a", Result: []byte("null")},
		}, []string{"b"}},
		"all undone":      {[]protocol.StepWrite{{Name: "a", Result: []byte("1"), Compensates: true}, {Name: "idem:undo:a", Result: []byte("null")}}, nil},
		"nothing to undo": {[]protocol.StepWrite{{Name: "c", Result: []byte("1")}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			key := unsafe.Key("t", "k")
			killedWith(t, r, key, tc.steps...)
			no := reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}}
			err := r.resolve(t, key.ID(), no)
			if tc.due == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, reconcile.ErrNotUndone)
			var due *reconcile.NotUndoneError
			require.ErrorAs(t, err, &due)
			require.Equal(t, tc.due, due.Steps)
			require.Equal(t, idem.InProgress, r.state(t, key), "nothing has changed")
			no.CompensatedManually = true
			require.NoError(t, r.resolve(t, key.ID(), no))
			require.Equal(t, idem.Failed, r.state(t, key))
		})
	}
}
