package streampoller

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
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

func (tab *table) put(t *testing.T, pk string, more ...string) {
	item := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: pk}, "sk": &types.AttributeValueMemberS{Value: "#"},
		"n": &types.AttributeValueMemberN{Value: "12.50"}, "b": &types.AttributeValueMemberB{Value: []byte{0, 0xff}},
	}
	for i := 0; i < len(more); i += 2 {
		item[more[i]] = &types.AttributeValueMemberS{Value: more[i+1]}
	}
	_, err := tab.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &tab.name, Item: item})
	require.NoError(t, err)
}

// A real stream gives the documented event, and all of it again from the horizon.
func TestStreamOfATable(t *testing.T) {
	tab := newTable(t)
	tab.put(t, "a")
	tab.put(t, "a", "x", "1")
	_, err := tab.db.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &tab.name, Key: map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "a"}, "sk": &types.AttributeValueMemberS{Value: "#"},
	}})
	require.NoError(t, err)

	var mu sync.Mutex
	var events []map[string]any
	collect := func(_ context.Context, event []byte) ([]byte, error) {
		var e struct{ Records []map[string]any }
		if err := json.Unmarshal(event, &e); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e.Records...)
		return nil, nil
	}
	for range 2 { // the second poller replays
		p, err := Start(t.Context(), tab.client, tab.stream, collect, &Options{PollInterval: 10 * time.Millisecond, Logf: t.Logf})
		require.NoError(t, err)
		t.Cleanup(p.Close)
		require.Eventually(t, func() bool { return p.Stats().Delivered == 3 }, time.Minute, 5*time.Millisecond)
		p.Close()
	}
	require.Len(t, events, 6)
	keys := map[string]any{"pk": map[string]any{"S": "a"}, "sk": map[string]any{"S": "#"}}
	image := map[string]any{
		"pk": map[string]any{"S": "a"}, "sk": map[string]any{"S": "#"},
		"n": map[string]any{"N": "12.5"}, "b": map[string]any{"B": "AP8="},
	}
	changed := map[string]any{"x": map[string]any{"S": "1"}}
	for k, v := range image {
		changed[k] = v
	}
	for i, want := range []struct {
		name           string
		newImg, oldImg any
	}{{"INSERT", image, nil}, {"MODIFY", changed, image}, {"REMOVE", nil, changed}} {
		for _, r := range []map[string]any{events[i], events[i+3]} {
			require.Equal(t, want.name, r["eventName"])
			require.Equal(t, "aws:dynamodb", r["eventSource"])
			require.Equal(t, tab.stream, r["eventSourceARN"])
			require.NotContains(t, r, "userIdentity")
			d := r["dynamodb"].(map[string]any)
			require.Equal(t, keys, d["Keys"])
			require.Equal(t, want.newImg, d["NewImage"])
			require.Equal(t, want.oldImg, d["OldImage"])
			require.Equal(t, "NEW_AND_OLD_IMAGES", d["StreamViewType"])
			require.IsType(t, float64(0), d["ApproximateCreationDateTime"])
			require.NotEmpty(t, d["SequenceNumber"])
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
