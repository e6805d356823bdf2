package paths_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/measure/paths"
)

// TestCallsPerPath holds every path to the design's number of calls.
func TestCallsPerPath(t *testing.T) {
	client := dynamotest.Client(t)
	table := fmt.Sprintf("paths%d", time.Now().UnixNano())
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	meter := &paths.Meter{Client: client}
	store, err := dynamostore.NewQuestions(meter, table, nil)
	require.NoError(t, err)
	got := measured{Paths: map[string]units{}}
	for i, p := range paths.All() {
		t.Run(p.Name, func(t *testing.T) {
			stage, err := paths.NewStage(store, table, fmt.Sprint("value", i))
			require.NoError(t, err)
			u, err := paths.Measure(t.Context(), p, stage, meter)
			require.NoError(t, err)
			require.Positive(t, u.Write+u.Read, "the units are known")
			got.Paths[p.Name] = units{u.Calls, u.Write, u.Read, u.Computed}
			if i == 0 {
				got.Record = bytesOf(t, client, table, stage)
			}
		})
	}
	compare(t, got)
}
