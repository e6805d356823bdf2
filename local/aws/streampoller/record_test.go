package streampoller

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
)

func sampleRecords(t *testing.T, event []byte) []json.RawMessage {
	var e struct{ Records []json.RawMessage }
	require.NoError(t, json.Unmarshal(event, &e))
	require.Len(t, e.Records, 3)
	return e.Records
}

// The service's records become the sample, field by field.
func TestEventIsTheSample(t *testing.T) {
	event, err := samples.Get("dynamodb-stream")
	require.NoError(t, err)
	var batch []record
	for _, raw := range sampleRecords(t, event) {
		var s struct {
			EventID, EventName, EventVersion, AwsRegion, EventSourceARN string
			Dynamodb                                                    struct {
				ApproximateCreationDateTime int64
				Keys, NewImage, OldImage    map[string]map[string]any
				SequenceNumber              string
				SizeBytes                   int64
				StreamViewType              string
			}
			UserIdentity *struct{ Type, PrincipalId string }
		}
		require.NoError(t, json.Unmarshal(raw, &s))
		r := &types.Record{
			EventID: &s.EventID, EventName: types.OperationType(s.EventName), EventVersion: &s.EventVersion,
			EventSource: aws.String("aws:dynamodb"), AwsRegion: &s.AwsRegion,
			Dynamodb: &types.StreamRecord{
				ApproximateCreationDateTime: aws.Time(time.Unix(s.Dynamodb.ApproximateCreationDateTime, 0)),
				Keys:                        sdkImage(t, s.Dynamodb.Keys), NewImage: sdkImage(t, s.Dynamodb.NewImage),
				OldImage: sdkImage(t, s.Dynamodb.OldImage), SequenceNumber: &s.Dynamodb.SequenceNumber,
				SizeBytes: &s.Dynamodb.SizeBytes, StreamViewType: types.StreamViewType(s.Dynamodb.StreamViewType),
			},
		}
		if s.UserIdentity != nil {
			r.UserIdentity = &types.Identity{Type: &s.UserIdentity.Type, PrincipalId: &s.UserIdentity.PrincipalId}
		}
		made, err := newRecord(r, s.EventSourceARN)
		require.NoError(t, err)
		require.Equal(t, s.Dynamodb.SequenceNumber, made.sequence)
		batch = append(batch, made)
	}
	require.JSONEq(t, string(event), string(eventOf(batch)))
}

func sdkImage(t *testing.T, image map[string]map[string]any) map[string]types.AttributeValue {
	m := map[string]types.AttributeValue{}
	for name, v := range image {
		m[name] = sdkValue(t, v)
	}
	return m
}

func sdkValue(t *testing.T, v map[string]any) types.AttributeValue {
	require.Len(t, v, 1)
	for kind, x := range v {
		switch kind {
		case "S":
			return &types.AttributeValueMemberS{Value: x.(string)}
		case "N":
			return &types.AttributeValueMemberN{Value: x.(string)}
		case "B":
			b, err := base64.StdEncoding.DecodeString(x.(string))
			require.NoError(t, err)
			return &types.AttributeValueMemberB{Value: b}
		case "BOOL":
			return &types.AttributeValueMemberBOOL{Value: x.(bool)}
		case "NULL":
			return &types.AttributeValueMemberNULL{Value: x.(bool)}
		case "SS":
			a := &types.AttributeValueMemberSS{}
			for _, e := range x.([]any) {
				a.Value = append(a.Value, e.(string))
			}
			return a
		case "L":
			a := &types.AttributeValueMemberL{}
			for _, e := range x.([]any) {
				a.Value = append(a.Value, sdkValue(t, e.(map[string]any)))
			}
			return a
		case "M":
			a := &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{}}
			for name, e := range x.(map[string]any) {
				a.Value[name] = sdkValue(t, e.(map[string]any))
			}
			return a
		}
		require.Fail(t, "the sample has a kind that the test does not know", kind)
	}
	return nil
}

func TestOtherKindsOfAttributes(t *testing.T) {
	for want, v := range map[string]types.AttributeValue{
		`{"NS":["1","2"]}`:           &types.AttributeValueMemberNS{Value: []string{"1", "2"}},
		`{"BS":["AQ==","Ag=="]}`:     &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2}}},
		`{"B":""}`:                   &types.AttributeValueMemberB{},
		`{"L":[]}`:                   &types.AttributeValueMemberL{},
		`{"M":{}}`:                   &types.AttributeValueMemberM{},
		`{"N":"9007199254740993.1"}`: &types.AttributeValueMemberN{Value: "9007199254740993.1"},
	} {
		m, err := valueOf(v)
		require.NoError(t, err)
		got, err := json.Marshal(m)
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
	_, err := valueOf(nil)
	require.Error(t, err)
	_, err = newRecord(&types.Record{}, "arn")
	require.ErrorContains(t, err, "no sequence number")
}
