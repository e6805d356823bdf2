package paths_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
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
				// A second try, on a machine that is busy, would be another call.
				&dynamostore.Options{WithoutTransactions: p.WithoutTransactions, AttemptTimeout: time.Minute,
					Budget: 5 * time.Minute})
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

// measuredFile is what the command that computes costs reads.
const measuredFile = "../../../infra/cost/measured.json"

var update = flag.Bool("update", false, "write "+measuredFile)

// measured is what the paths took on DynamoDB Local.
type measured struct {
	// Record is the size of a completed record in bytes, as DynamoDB counts it.
	Record int              `json:"record"`
	Paths  map[string]units `json:"paths"`
}

type units struct {
	Calls    map[string]int `json:"calls"`
	Write    float64        `json:"write"`
	Read     float64        `json:"read"`
	Computed float64        `json:"computed"`
}

// bytesOf the stage's record.
func bytesOf(t *testing.T, client *dynamodb.Client, table string, s *paths.Stage) int {
	id := idem.Operation{Name: "path", Repeat: idem.Repeatable}.Key("acme", s.Value).ID()
	out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{
			schema.PK: &types.AttributeValueMemberS{Value: id}, schema.SK: &types.AttributeValueMemberS{Value: schema.RecordSK},
		}})
	require.NoError(t, err)
	require.NotEmpty(t, out.Item)
	return paths.ItemSize(out.Item)
}

// compare holds the file to what was measured. A number is a byte longer or shorter
// by its digits: the size is the same within a few.
func compare(t *testing.T, got measured) {
	t.Helper()
	if *update {
		text, err := json.MarshalIndent(got, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(measuredFile, append(text, '\n'), 0o644))
		return
	}
	text, err := os.ReadFile(measuredFile)
	require.NoError(t, err)
	var want measured
	require.NoError(t, json.Unmarshal(text, &want))
	require.Equal(t, want.Paths, got.Paths, "run with -update, and renew the table of costs")
	require.InDelta(t, want.Record, got.Record, 16, "run with -update, and renew the table of costs")
}
