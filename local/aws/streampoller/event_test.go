package streampoller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem/schema"
)

// The service's records become the sample, field by field: the service's reply is the sample
// with other names for who made a change.
func TestEventIsTheSample(t *testing.T) {
	event, err := samples.Get("dynamodb-stream")
	require.NoError(t, err)
	reply := strings.NewReplacer(`"principalId"`, `"PrincipalId"`, `"type"`, `"Type"`).Replace(string(event))
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, reply) }))
	defer service.Close()
	client := dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: &service.URL, Region: "us-east-1", Credentials: aws.AnonymousCredentials{},
	})
	out, err := client.GetRecords(t.Context(), &dynamodbstreams.GetRecordsInput{ShardIterator: aws.String("i")})
	require.NoError(t, err)

	var batch []record
	var e struct {
		Records []struct{ EventSourceARN string }
	}
	require.NoError(t, json.Unmarshal(event, &e))
	require.Len(t, e.Records, 3)
	for i, sample := range e.Records {
		made, err := newRecord(&out.Records[i], sample.EventSourceARN)
		require.NoError(t, err)
		require.Equal(t, *out.Records[i].Dynamodb.SequenceNumber, made.sequence)
		batch = append(batch, made)
	}
	require.JSONEq(t, string(event), string(eventOf(batch)))
}

func TestOtherKindsOfAttributes(t *testing.T) {
	for want, v := range map[string]types.AttributeValue{
		`{"NS":["1","2"]}`:           &types.AttributeValueMemberNS{Value: []string{"1", "2"}},
		`{"BS":["AQ==","Ag=="]}`:     &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2}}},
		`{"BOOL":true}`:              &types.AttributeValueMemberBOOL{Value: true},
		`{"L":[]}`:                   &types.AttributeValueMemberL{},
		`{"M":{}}`:                   &types.AttributeValueMemberM{},
		`{"N":"9007199254740993.1"}`: &types.AttributeValueMemberN{Value: "9007199254740993.1"},
	} {
		got, err := json.Marshal(valueOf(v))
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
	_, err := newRecord(&types.Record{}, "arn")
	require.ErrorContains(t, err, "no sequence number")
}

func TestFilter(t *testing.T) {
	outbox := func(sk, state string) string {
		return fmt.Sprintf(`{"dynamodb":{"Keys":{"sk":{"S":%q}},"NewImage":{"in_state":{"S":%q}}}}`, sk, state)
	}
	for _, c := range []struct {
		filter, record string
		want           bool
	}{
		{schema.OutboxFilter, outbox("outbox#1", "new"), true},
		{schema.OutboxFilter, outbox("#", "new"), false},
		{schema.OutboxFilter, outbox("outbox#1", "failed"), false},
		{schema.OutboxFilter, `{"dynamodb":{"Keys":{"sk":{"S":"outbox#1"}},"OldImage":{"in_state":{"S":"new"}}}}`, false},
		{`{}`, `{"a":"x"}`, true},
		{`{"a":["x","y"]}`, `{"a":"y"}`, true},
		{`{"a":["x"]}`, `{"a":"xy"}`, false},
		{`{"a":["x"]}`, `{"b":"x"}`, false},
		{`{"a":["x"],"b":["y"]}`, `{"a":"x","b":"z"}`, false},
		{`{"a":{"b":["x"]}}`, `{"a":"x"}`, false},
		{`{"a":["1"]}`, `{"a":1}`, false},
		{`{"a":[{"prefix":"x"},{"prefix":"out"}]}`, `{"a":"outbox"}`, true},
		{`{"a":[{"exists":true}]}`, `{"a":""}`, true},
		{`{"a":[{"exists":true}]}`, `{}`, false},
		{`{"a":[{"exists":true}]}`, `{"a":{"b":"1"}}`, false},
	} {
		p, err := parse(c.filter)
		require.NoError(t, err, c.filter)
		require.Equal(t, c.want, p.matches([]byte(c.record)), "%s on %s", c.filter, c.record)
	}
	for _, filter := range []string{
		`{`, `[]`, `{"a":"x"}`, `{"a":[1]}`, `{"a":[{"wildcard":"x*"}]}`, `{"a":[{"prefix":1}]}`, `{"a":[{"exists":false}]}`,
		`{"a":[{"prefix":"x","exists":true}]}`, `{"a":[{}]}`,
	} {
		_, err := parse(filter)
		require.ErrorContains(t, err, "streampoller: filter", filter)
	}
}
