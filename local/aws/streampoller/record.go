package streampoller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// record is one change on its way to the function.
type record struct {
	sequence string
	json     []byte // as the function gets it
}

// newRecord makes the event's form of a record: names and nesting as Lambda has
// them, numbers as strings, bytes as Base64.
func newRecord(r *types.Record, streamARN string) (record, error) {
	d := r.Dynamodb
	if d == nil || aws.ToString(d.SequenceNumber) == "" {
		return record{}, fmt.Errorf("streampoller: record %s has no sequence number", aws.ToString(r.EventID))
	}
	change := map[string]any{
		"SequenceNumber": aws.ToString(d.SequenceNumber),
		"SizeBytes":      aws.ToInt64(d.SizeBytes),
		"StreamViewType": string(d.StreamViewType),
	}
	if created := aws.ToTime(d.ApproximateCreationDateTime); !created.IsZero() {
		change["ApproximateCreationDateTime"] = created.Unix()
	}
	for name, image := range map[string]map[string]types.AttributeValue{
		"Keys": d.Keys, "NewImage": d.NewImage, "OldImage": d.OldImage,
	} {
		if len(image) > 0 {
			change[name] = imageOf(image)
		}
	}
	event := map[string]any{
		"eventID": aws.ToString(r.EventID), "eventName": string(r.EventName),
		"eventVersion": aws.ToString(r.EventVersion), "eventSource": "aws:dynamodb",
		"awsRegion": aws.ToString(r.AwsRegion), "dynamodb": change, "eventSourceARN": streamARN,
	}
	if r.UserIdentity != nil {
		event["userIdentity"] = map[string]any{
			"type": aws.ToString(r.UserIdentity.Type), "principalId": aws.ToString(r.UserIdentity.PrincipalId),
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(event); err != nil {
		return record{}, fmt.Errorf("streampoller: %w", err)
	}
	return record{sequence: *d.SequenceNumber, json: bytes.TrimSpace(b.Bytes())}, nil
}

func imageOf(image map[string]types.AttributeValue) map[string]any {
	m := make(map[string]any, len(image))
	for name, v := range image {
		m[name] = valueOf(v)
	}
	return m
}

// valueOf is an attribute in DynamoDB's JSON, whose names of types end the names of the SDK's.
// encoding/json makes Base64 of bytes.
func valueOf(v types.AttributeValue) map[string]any {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", v), "*types.AttributeValueMember")
	switch v := v.(type) {
	case *types.AttributeValueMemberL:
		list := make([]any, len(v.Value))
		for i, e := range v.Value {
			list[i] = valueOf(e)
		}
		return map[string]any{kind: list}
	case *types.AttributeValueMemberM:
		return map[string]any{kind: imageOf(v.Value)}
	}
	return map[string]any{kind: reflect.ValueOf(v).Elem().FieldByName("Value").Interface()}
}

// eventOf is the function's event for a batch.
func eventOf(batch []record) []byte {
	records := make([][]byte, len(batch))
	for i, r := range batch {
		records[i] = r.json
	}
	return slices.Concat([]byte(eventHead), bytes.Join(records, []byte(",")), []byte(eventTail))
}

const (
	eventHead = `{"Records":[`
	eventTail = `]}`
)
