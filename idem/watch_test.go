package idem_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// due lists what the index has, whenever it is due.
func (r *rig) due(t *testing.T) (ids []string) {
	t.Helper()
	for shard := range protocol.Shards {
		p, err := r.mem.Due(context.Background(), protocol.DueQuery{Shard: shard, Until: r.clock.Now().Add(100 * 365 * 24 * time.Hour), Limit: 100})
		require.NoError(t, err)
		require.Empty(t, p.Next)
		ids = append(ids, p.IDs...)
	}
	return ids
}

// watchings says of every declaration whether its claims are watched.
var watchings = []struct {
	op      idem.Operation
	watched bool
}{
	{idem.Operation{Name: "refund"}, true},
	{idem.Operation{Name: "refund", Watch: idem.WatchAlways}, true},
	{idem.Operation{Name: "refund", Watch: idem.WatchNever}, false},
	{idem.Operation{Name: "webhook", Repeat: idem.Repeatable}, false},
	{idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways}, true},
	{idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchNever}, false},
}

// A watched claim is in the index from when it is taken until it ends, due when others may
// act on its lapse. It carries no expiry: the table does not forget what nobody has looked at.
func TestWatchedClaimIsInTheIndexUntilItEnds(t *testing.T) {
	ends := map[string]error{"completed": nil, "failed": idem.Permanent(errPlain), "released": idem.NotExecuted(errPlain)}
	for _, w := range watchings {
		for name, end := range ends {
			t.Run(fmt.Sprint(w.op.Name, w.op.Watch, " ", name), func(t *testing.T) {
				r, key := newRig(t, nil), w.op.Key("t", "k")
				_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
					rec := r.record(t, key)
					if !w.watched {
						require.Empty(t, r.due(t))
						require.Zero(t, rec.Due)
						require.Equal(t, w.op.Repeat == idem.Repeatable, !rec.ExpiresAt.IsZero(), "as before")
						return 1, end
					}
					require.Equal(t, []string{key.ID()}, r.due(t))
					require.Equal(t, rec.LeaseUntil.Add(idem.DefaultMargin), rec.Due)
					require.Zero(t, rec.ExpiresAt)
					return 1, end
				})
				require.Equal(t, end == nil, err == nil)
				require.Empty(t, r.due(t))
				require.NotZero(t, r.record(t, key).ExpiresAt)
				require.Equal(t, m("Acquire", "Finish"), r.faults.Calls(), "no further call")
			})
		}
	}
}

// Of a process that died, and of a client that never comes back, the watched claim stays in
// the index. One that is not watched is in no list: it stays in the table for good unless it
// is repeatable and has no steps, and the next call finds it.
func TestWatchedClaimOfADeadProcessStaysInTheIndex(t *testing.T) {
	for _, w := range watchings {
		for _, steps := range [][]protocol.StepWrite{nil, {charged}} {
			t.Run(fmt.Sprint(w.op.Name, w.op.Watch, " steps ", len(steps)), func(t *testing.T) {
				r, key := newRig(t, nil), w.op.Key("t", "k")
				killedWith(t, r, key, steps...)
				rec := r.record(t, key)
				if w.watched {
					require.Equal(t, []string{key.ID()}, r.due(t))
					require.True(t, rec.Due.Before(r.clock.Now()))
					require.Zero(t, rec.ExpiresAt)
					return
				}
				require.Empty(t, r.due(t))
				require.Equal(t, w.op.Repeat == idem.Repeatable && steps == nil, !rec.ExpiresAt.IsZero())
				_, err := idem.Do(t.Context(), r.engine, key, 1, new(counter).run)
				require.Equal(t, w.op.Repeat == idem.Repeatable, err == nil)
			})
		}
	}
}

// A takeover of a watched claim is watched as its own declaration says, with its own lease.
func TestTakeoverIsWatchedAsItIsDeclared(t *testing.T) {
	for _, before := range []idem.Watch{idem.WatchNotRepeatable, idem.WatchAlways} {
		for _, now := range []idem.Watch{idem.WatchNotRepeatable, idem.WatchAlways} {
			op := idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: before}
			r := newRig(t, nil)
			killed(t, r, op.Key("t", "k"))
			r.clock.Advance(time.Hour)
			op.Watch = now
			key := op.Key("t", "k")
			_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
				rec := r.record(t, key)
				require.Equal(t, now == idem.WatchAlways, len(r.due(t)) == 1)
				require.Equal(t, now == idem.WatchAlways, rec.Due.Equal(rec.LeaseUntil.Add(idem.DefaultMargin)))
				return 1, nil
			})
			require.NoError(t, err)
			require.Empty(t, r.due(t))
		}
	}
}

// What was declared not repeatable before stays so, and is watched.
func TestStricterDeclarationIsWatched(t *testing.T) {
	r := newRig(t, nil)
	key := idem.Operation{Name: "refund"}.Key("t", "k")
	released(t, r, key)
	key = idem.Operation{Name: "refund", Repeat: idem.Repeatable}.Key("t", "k")
	_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
		require.Equal(t, []string{key.ID()}, r.due(t))
		return 1, nil
	})
	require.NoError(t, err)
	require.Empty(t, r.due(t))
}

// A renewal moves the lease alone: a sweep that meets the claim moves what is due.
func TestHeartbeatLeavesTheIndexAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, key := newRig(t, nil), unsafe.Key("t", "k")
		_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
			before := r.record(t, key)
			time.Sleep(2 * time.Minute)
			after := r.record(t, key)
			require.Equal(t, before.Due, after.Due)
			require.True(t, after.LeaseUntil.After(before.LeaseUntil))
			return 1, nil
		})
		require.NoError(t, err)
		require.NotZero(t, r.count(idemtest.Extend))
		require.Empty(t, r.due(t))
	})
}

// A claim in doubt, taken back, leaves nothing in the index.
func TestWatchedClaimThatIsTakenBackLeavesTheIndex(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"reply lost": idemtest.LoseReply, "request lost": idemtest.LoseRequest} {
		t.Run(name, func(t *testing.T) {
			r, key := newRig(t, nil), unsafe.Key("t", "k")
			r.faults.Next(idemtest.Acquire, fault)
			_, err := idem.Do(t.Context(), r.engine, key, 1, new(counter).run)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Empty(t, r.due(t))
		})
	}
}

// A watched repeatable operation carries on as an unwatched one: the next call takes over.
func TestWatchedRepeatableOperationIsTakenOver(t *testing.T) {
	r, c := newRig(t, nil), new(counter)
	key := idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways}.Key("t", "k")
	killed(t, r, key)
	r.clock.Advance(365 * 24 * time.Hour)
	_, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
	require.NoError(t, err)
	require.Equal(t, 1, c.count())
	require.Equal(t, 2, r.record(t, key).Attempt)
}
