package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// On DynamoDB too a watched claim is in the index while its handler runs, and not after.
func TestWatchedClaimsAreInTheIndex(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	engine := engineOver(t, q)
	for n, tc := range []struct {
		op      idem.Operation
		watched bool
	}{
		{idem.Operation{Name: "refund"}, true},
		{idem.Operation{Name: "refund", Watch: idem.WatchNever}, false},
		{idem.Operation{Name: "webhook", Repeat: idem.Repeatable}, false},
		{idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways}, true},
	} {
		t.Run(fmt.Sprint(tc.op.Name, tc.op.Watch), func(t *testing.T) {
			key := tc.op.Key("t", fmt.Sprint(n))
			due := func() []string { return dueOf(t, q) }
			_, err := idem.Do(t.Context(), engine, key, 1, func(context.Context, int) (int, error) {
				it := f.raw(t, key.ID())
				_, expires := it[schema.ExpiresAt]
				if tc.watched {
					require.Equal(t, []string{key.ID()}, due())
					require.False(t, expires)
				} else {
					require.Empty(t, due())
					require.Equal(t, tc.op.Repeat == idem.Repeatable, expires)
				}
				return 1, nil
			})
			require.NoError(t, err)
			require.Empty(t, due())
		})
	}
}

// dueOf lists what is in the index.
func dueOf(t *testing.T, q *AdminStore) (ids []string) {
	for shard := range protocol.Shards {
		p, err := q.Due(t.Context(), protocol.DueQuery{Shard: shard, Until: time.Now().Add(24 * time.Hour), Limit: 100})
		require.NoError(t, err)
		ids = append(ids, p.IDs...)
	}
	return ids
}

// A claim that an at-most-once step has watched leaves the index with its end, whatever a
// sweep has written in between, and whether or not the begin mark was answered.
func TestAClaimThatABeginMarkWatchesLeavesTheIndex(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
	once := &idem.StepConfig[int]{Semantics: idem.AtMostOnce}
	for name, end := range map[string]error{"completed": nil, "failed": idem.Permanent(errors.New("declined"))} {
		for _, lost := range []bool{false, true} {
			faults := idemtest.NewFaults(q)
			engine, err := idem.New(faults, &unhurried)
			require.NoError(t, err)
			key := op.Key("t", fmt.Sprint(name, lost))
			call := func() error {
				_, err := idem.Do(t.Context(), engine, key, 1, func(ctx context.Context, _ int) (int, error) {
					_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) {
						require.Equal(t, []string{key.ID()}, dueOf(t, q))
						rec := f.get(t, key.ID())
						return 1, q.Postpone(ctx, time.Now(), protocol.Postponement{
							ID: rec.ID, Seen: rec.Write, SeenSweep: rec.Sweep, Sweep: "sweep " + name, Due: time.Now().Add(time.Hour), Probes: 2,
						})
					}, once)
					if err != nil {
						return 0, err
					}
					return 1, end
				})
				return err
			}
			if lost {
				faults.Next(idemtest.RecordStep, idemtest.LoseReply)
				require.ErrorIs(t, call(), idem.ErrStoreUnavailable)
				require.Equal(t, []string{key.ID()}, dueOf(t, q), "released with steps")
			}
			require.Equal(t, end == nil, call() == nil)
			require.Empty(t, dueOf(t, q))
			it := f.raw(t, key.ID())
			for _, left := range []string{schema.OpenShard, schema.OpenDue, schema.OpenSince, schema.Sweep, schema.Probes} {
				require.NotContains(t, it, left)
			}
		}
	}
}
