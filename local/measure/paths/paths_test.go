package paths_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/measure/paths"
)

// TestCallsAndUnitsPerPath holds every path to the design's number of calls.
func TestCallsAndUnitsPerPath(t *testing.T) {
	client := dynamotest.Client(t)
	table := fmt.Sprintf("paths%d", time.Now().UnixNano())
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	var meter paths.Meter
	got := measured{Paths: map[string]units{}}
	for i, p := range paths.All() {
		t.Run(p.Name, func(t *testing.T) {
			store, err := dynamostore.NewAdminStore(dynamodb.New(client.Options(), meter.Count), table,
				&dynamostore.Options{WithoutTransactions: p.WithoutTransactions})
			require.NoError(t, err)
			stage, err := paths.NewStage(store, table, fmt.Sprint("value", i))
			require.NoError(t, err)
			u, err := paths.Measure(t.Context(), p, stage, &meter)
			require.NoError(t, err)
			require.Positive(t, u.Write+u.Read, "the units are known")
			got.Paths[p.Name] = units{u.Calls, u.Write, u.Read, u.Computed}
			if i == 0 {
				got.Record = bytesOf(t, client, table, stage)
			}
		})
	}
	if t.Failed() || len(got.Paths) < len(paths.All()) {
		return // -run has left some out
	}
	compare(t, got)
	watchingCosts(t, got)
}

// A watched claim is an entry of the index, which is written and removed again: two units.
// Nothing else of it touches the index, and who is not watched pays nothing.
func watchingCosts(t *testing.T, got measured) {
	for name, want := range map[string]struct {
		than string
		more float64
	}{
		"first execution, not repeatable":            {"first execution, repeatable", 2},
		"first execution, repeatable, watched":       {"first execution, repeatable", 2},
		"first execution, not repeatable, unnoticed": {"first execution, repeatable", 0},
		"at-most-once step":                          {"at-most-once step, unnoticed", 2},
		"at-most-once step, watched":                 {"at-most-once step, unnoticed", 2},
		"two at-most-once steps":                     {"two at-most-once steps, unnoticed", 2},
		"half done, taken over":                      {"half done, taken over, unnoticed", 1},
		"lease renewed, watched":                     {"lease renewed", 0},
		"reference, watched":                         {"reference", 0},
	} {
		require.Contains(t, got.Paths, name)
		require.Contains(t, got.Paths, want.than)
		one, other := got.Paths[name], got.Paths[want.than]
		require.Equal(t, want.more, one.Write-other.Write, "%s", name)
		require.Equal(t, other.Calls, one.Calls, "%s", name)
	}
}
