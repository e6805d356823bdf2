package casstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// A row is in one of the groups in which it is looked for.
func TestGroupsOfShards(t *testing.T) {
	seen := map[int]int{}
	for n := range 1000 {
		rec := &protocol.Record{ID: fmt.Sprintf("t#op#%d", n), State: protocol.InProgress}
		group := Group(rec.ID)
		for range 2 {
			require.Contains(t, DueGroups(shardOf(rec)), group)
			rec.State = protocol.Unknown
		}
		e, err := EntryOf(&protocol.Audit{ID: rec.ID, At: time.Now()})
		require.NoError(t, err)
		require.Contains(t, EntryGroups(e.Shard), group)
		seen[group]++
	}
	require.Len(t, seen, Groups)
	for shard := range protocol.Shards {
		groups := DueGroups(shard)
		require.Len(t, groups, map[bool]int{true: 3, false: 1}[shard < protocol.QuestionShards])
		require.True(t, slices.IsSorted(groups))
	}
	pause := protocol.Pause{Operation: "op"}
	require.Equal(t, Group(pausesRow), Group(pause.ID()), "the list and its entries")
}
