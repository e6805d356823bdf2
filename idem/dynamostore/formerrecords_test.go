package dynamostore

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Records as they were before the first release, in testdata as they lay in the table,
// are refused by every read, and never taken for absent or for something else.
func TestRecordsOfBeforeTheFirstReleaseAreRefused(t *testing.T) {
	raw, err := os.ReadFile("testdata/before-first-release.json")
	require.NoError(t, err)
	var records map[string]map[string]any
	require.NoError(t, json.Unmarshal(raw, &records))
	require.Len(t, records, 3)
	for name, former := range records {
		t.Run(name, func(t *testing.T) {
			it := fromJSON(t, former)
			_, err := decode(it)
			require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
			require.ErrorContains(t, err, `record "t#op#key": it has attribute "v" with 1, as before the first release, `+
				`whose attributes had other names: delete it, or start with a new table`)
			s, err := New(fake(func(_ context.Context, in any) (item, error) {
				return it, &types.ConditionalCheckFailedException{Item: it}
			}), "table", nil)
			require.NoError(t, err)
			for what, err := range map[string]error{
				"claim":    s.Acquire(t.Context(), base, claim("t#op#key", "o2")),
				"complete": s.Finish(t.Context(), base, completion("t#op#key", "o1", nil)),
			} {
				require.ErrorIs(t, err, protocol.ErrRecordUnreadable, what)
				require.ErrorContains(t, err, "before the first release", what)
			}
		})
	}
}

// fromJSON makes an item of DynamoDB's JSON.
func fromJSON(t *testing.T, attributes map[string]any) item {
	it := item{}
	for name, typed := range attributes {
		for kind, value := range typed.(map[string]any) {
			switch kind {
			case "S":
				it[name] = &types.AttributeValueMemberS{Value: value.(string)}
			case "N":
				it[name] = &types.AttributeValueMemberN{Value: value.(string)}
			case "B":
				it[name] = &types.AttributeValueMemberB{Value: []byte(value.(string))}
			case "BOOL":
				it[name] = &types.AttributeValueMemberBOOL{Value: value.(bool)}
			case "M":
				it[name] = &types.AttributeValueMemberM{Value: fromJSON(t, value.(map[string]any))}
			default:
				require.FailNow(t, "an attribute of type "+kind)
			}
		}
	}
	return it
}
