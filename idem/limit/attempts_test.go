package limit

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// The memory of attempts is bounded, and has the latest.
func TestTheLatestAttemptsAreRemembered(t *testing.T) {
	var a attempts
	for i := range 10 * generation {
		a.add(strconv.Itoa(i))
		require.True(t, a.has(strconv.Itoa(max(0, i-generation+1))))
		require.LessOrEqual(t, len(a.newer)+len(a.older), 2*generation)
	}
	require.False(t, a.has("0"))
	for i := range 10 * generation {
		a.remove(strconv.Itoa(i))
	}
	require.Empty(t, a.newer)
	require.Empty(t, a.older)
}

// An attempt whose commit has landed is over.
func TestAnAttemptThatHasLandedIsForgotten(t *testing.T) {
	table := memstore.Options{MaxResult: 1}.New()
	over, err := Over(table, map[string]PerTenant{"op": {Keys: 1, Window: time.Second}})
	require.NoError(t, err)
	s, now := over.(*store), time.Now()
	f := protocol.Finish{ID: "t#op#k", Owner: "o", Write: "w"}
	f.Ending = protocol.Ending{State: protocol.Completed, Result: []byte("12")}
	f.Attempt = protocol.Atomic{Claim: protocol.Claim{Record: protocol.Record{ID: f.ID, Owner: f.Owner, Write: f.Write}}}
	require.Error(t, s.Finish(t.Context(), now, f), "too large")
	require.True(t, s.commits.has(f.Owner))
	f.Ending.Result = nil
	require.NoError(t, s.Finish(t.Context(), now, f))
	require.False(t, s.commits.has(f.Owner))
}
