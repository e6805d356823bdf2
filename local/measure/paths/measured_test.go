package paths_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/measure/paths"
)

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
	out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{
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
