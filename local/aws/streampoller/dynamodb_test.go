package streampoller

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
)

// table is a table with its stream in DynamoDB Local.
type table struct {
	db     *dynamodb.Client
	client *dynamodbstreams.Client
	name   string
	stream string
}

func newTable(t *testing.T) *table {
	tab := &table{db: dynamotest.Client(t), name: "streampoller-" + rand.Text()}
	tab.client = dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: tab.db.Options().BaseEndpoint, Region: "us-east-1", Credentials: tab.db.Options().Credentials,
	})
	require.NoError(t, dynamostore.CreateTable(t.Context(), tab.db, tab.name))
	t.Cleanup(func() {
		_, err := tab.db.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &tab.name})
		require.NoError(t, err)
	})
	var err error
	tab.stream, err = StreamOf(t.Context(), tab.db, tab.name)
	require.NoError(t, err)
	return tab
}

// A real stream gives the documented event, and all of it again from the horizon.
func TestStreamOfATable(t *testing.T) {
	tab := newTable(t)
	item := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "a"}, "sk": &types.AttributeValueMemberS{Value: "#"},
		"n": &types.AttributeValueMemberN{Value: "12.50"}, "b": &types.AttributeValueMemberB{Value: []byte{0, 0xff}},
	}
	changed := maps.Clone(item)
	changed["x"] = &types.AttributeValueMemberS{Value: "1"}
	for _, version := range []map[string]types.AttributeValue{item, changed} {
		_, err := tab.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &tab.name, Item: version})
		require.NoError(t, err)
	}
	key := map[string]types.AttributeValue{"pk": item["pk"], "sk": item["sk"]}
	_, err := tab.db.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &tab.name, Key: key})
	require.NoError(t, err)

	const keys = `"Keys":{"pk":{"S":"a"},"sk":{"S":"#"}}`
	const first = `{"pk":{"S":"a"},"sk":{"S":"#"},"n":{"N":"12.5"},"b":{"B":"AP8="}}`
	const second = `{"pk":{"S":"a"},"sk":{"S":"#"},"n":{"N":"12.5"},"b":{"B":"AP8="},"x":{"S":"1"}}`
	want := []string{
		`{"eventName":"INSERT","dynamodb":{` + keys + `,"NewImage":` + first + `}}`,
		`{"eventName":"MODIFY","dynamodb":{` + keys + `,"NewImage":` + second + `,"OldImage":` + first + `}}`,
		`{"eventName":"REMOVE","dynamodb":{` + keys + `,"OldImage":` + second + `}}`,
	}
	for range 2 { // the second poller replays
		var got []map[string]any // the deliveries of one shard follow each other
		p, err := Start(t.Context(), tab.client, tab.stream, func(_ context.Context, event []byte) ([]byte, error) {
			var e struct{ Records []map[string]any }
			err := json.Unmarshal(event, &e)
			got = append(got, e.Records...)
			return nil, err
		}, &Options{PollInterval: 10 * time.Millisecond, Logf: t.Logf})
		require.NoError(t, err)
		t.Cleanup(p.Close)
		require.Eventually(t, func() bool { return p.Delivered() == 3 }, time.Minute, 5*time.Millisecond)
		p.Close()
		require.Len(t, got, 3)
		for i, r := range got {
			require.Equal(t, "aws:dynamodb", r["eventSource"])
			require.Equal(t, tab.stream, r["eventSourceARN"])
			d := r["dynamodb"].(map[string]any)
			require.Equal(t, "NEW_AND_OLD_IMAGES", d["StreamViewType"])
			require.IsType(t, float64(0), d["ApproximateCreationDateTime"])
			require.NotEmpty(t, d["SequenceNumber"])
			maps.DeleteFunc(d, func(name string, _ any) bool { return name != "Keys" && !strings.HasSuffix(name, "Image") })
			text, err := json.Marshal(map[string]any{"eventName": r["eventName"], "dynamodb": d})
			require.NoError(t, err)
			require.JSONEq(t, want[i], string(text))
			require.NotContains(t, r, "userIdentity")
		}
	}
}

func TestNoStream(t *testing.T) {
	tab := newTable(t)
	_, err := StreamOf(t.Context(), tab.db, "none")
	require.ErrorContains(t, err, "table none")
	_, err = Start(t.Context(), tab.client, tab.stream+"x", ok(&batches{}), nil)
	require.Error(t, err)
}
