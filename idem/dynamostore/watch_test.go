package dynamostore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// On DynamoDB too a watched claim is in the index while its handler runs, and not after.
func TestWatchedClaimsAreInTheIndex(t *testing.T) {
	f := open(t, nil)
	q := f.questions(t)
	engine, err := idem.New(q, nil)
	require.NoError(t, err)
	for n, tc := range []struct {
		op      idem.Operation
		watched bool
	}{
		{idem.Operation{Name: "refund"}, true},
		{idem.Operation{Name: "refund", Watch: idem.LeaveAbandonedUnnoticed}, false},
		{idem.Operation{Name: "webhook", Repeat: idem.Repeatable}, false},
		{idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways}, true},
	} {
		t.Run(fmt.Sprint(tc.op.Name, tc.op.Watch), func(t *testing.T) {
			key := tc.op.Key("t", fmt.Sprint(n))
			due := func() (ids []string) {
				for shard := range protocol.Shards {
					p, err := q.Due(t.Context(), protocol.DueQuery{Shard: shard, Until: time.Now().Add(24 * time.Hour), Limit: 100})
					require.NoError(t, err)
					ids = append(ids, p.IDs...)
				}
				return ids
			}
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
