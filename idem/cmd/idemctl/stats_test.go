package main

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/reconcile"
)

// A night of sweeps makes more changes than anybody waits for.
func TestStatsCountNoMoreThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, value := range []string{"r-1", "r-2", "r-3"} {
			key := refund.Key("acme", value)
			b.unknown(key)
			require.NoError(t, b.reconciler().Resolve(t.Context(), key.ID(), reconcile.Resolution{To: "completed"}, reconcile.Change{Actor: "bob", Reason: "w", Tool: "t"}))
		}
		b.unknown(refund.Key("acme", "r-4"))
		b.unknown(refund.Key("acme", "r-5"))
		for limit, more := range map[string]bool{"2": true, "3": false} {
			code, out, errs := b.run("stats", "--limit", limit, "-o", "json")
			require.Equal(t, exitDone, code, errs)
			var st stats
			require.NoError(t, json.Unmarshal([]byte(out), &st))
			require.Equal(t, more, st.More)
			require.Equal(t, map[bool]int{true: 2, false: 3}[more], st.Changes[0].Count)
			require.False(t, st.Partial)
			_, out, _ = b.run("stats", "--limit", limit)
			require.Equal(t, more, strings.Contains(out, "these are the first ones: raise --limit"))
		}
		_, out, _ := b.run("stats", "--limit", "1", "-o", "json")
		require.Contains(t, out, `"partial": true`)
	})
}
