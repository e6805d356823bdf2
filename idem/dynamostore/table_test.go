package dynamostore

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
)

func TestCreateTableAndCheck(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	name := f.newTable(t)
	require.NoError(t, CreateTable(ctx, f.admin, name))
	require.NoError(t, Check(ctx, f.admin, name))
	require.NoError(t, CreateTable(ctx, f.admin, name), "a table that exists and fits")

	out, err := f.admin.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	require.NoError(t, err)
	require.Equal(t, types.StreamViewTypeNewAndOldImages, out.Table.StreamSpecification.StreamViewType)
	require.Equal(t, types.BillingModePayPerRequest, out.Table.BillingModeSummary.BillingMode)
	require.Equal(t, types.ProjectionTypeKeysOnly, out.Table.GlobalSecondaryIndexes[0].Projection.ProjectionType)

	f.expires(t, name, schema.ExpiresAt, false)
	says(t, Check(ctx, f.admin, name), "TTL off")
	says(t, CreateTable(ctx, f.admin, name), "TTL off")
}

// newTable is the name of a table that goes with the test.
func (f *fixture) newTable(t *testing.T) string {
	name := "new-" + rand.Text()
	t.Cleanup(func() {
		_, err := f.admin.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name})
		require.NoError(t, err)
	})
	return name
}

// tableWith has these keys, and these of the index if there are any: each a name and a type.
func (f *fixture) tableWith(t *testing.T, keys, index []string) string {
	t.Helper()
	in := &dynamodb.CreateTableInput{TableName: aws.String(f.newTable(t)), BillingMode: types.BillingModePayPerRequest}
	schemaOf := func(keys []string) (elements []types.KeySchemaElement) {
		for i, key := range keys {
			name, kind, _ := strings.Cut(key, " ")
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &name,
				AttributeType: types.ScalarAttributeType(kind)})
			elements = append(elements, types.KeySchemaElement{AttributeName: &name,
				KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
		}
		return elements
	}
	in.KeySchema = schemaOf(keys)
	if index != nil {
		in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{IndexName: aws.String("open"),
			KeySchema: schemaOf(index), Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}}}
	}
	_, err := f.admin.CreateTable(t.Context(), in)
	require.NoError(t, err)
	return *in.TableName
}

func (f *fixture) expires(t *testing.T, table, attribute string, on bool) {
	t.Helper()
	_, err := f.admin.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &attribute, Enabled: &on}})
	require.NoError(t, err)
}

// Lost replies do not leave a table without TTL, or a second try without success.
func TestCreateTableSurvivesLostReplies(t *testing.T) {
	f := open(t, nil)
	client := dynamodb.New(f.admin.Options(), func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: f.wire}
		o.Retryer = aws.NopRetryer{}
	})
	lost := f.wire.loseFirst(1)
	name := f.newTable(t)
	require.NoError(t, CreateTable(t.Context(), client, name))
	require.Subset(t, lost, map[string]int{"CreateTable": 1, "DescribeTable": 1, "UpdateTimeToLive": 1})
	require.NoError(t, Check(t.Context(), f.admin, name))
}
