package streampoller

import (
	"bytes"
	"encoding/json"
	"fmt"

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
		if len(image) == 0 {
			continue
		}
		m, err := imageOf(image)
		if err != nil {
			return record{}, err
		}
		change[name] = m
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

func imageOf(image map[string]types.AttributeValue) (map[string]any, error) {
	m := make(map[string]any, len(image))
	for name, v := range image {
		var err error
		if m[name], err = valueOf(v); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// valueOf is an attribute in DynamoDB's JSON. encoding/json makes Base64 of bytes.
func valueOf(v types.AttributeValue) (map[string]any, error) {
	switch a := v.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": a.Value}, nil
	case *types.AttributeValueMemberN:
		return map[string]any{"N": a.Value}, nil
	case *types.AttributeValueMemberB:
		return map[string]any{"B": notNil(a.Value)}, nil
	case *types.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": a.Value}, nil
	case *types.AttributeValueMemberNULL:
		return map[string]any{"NULL": a.Value}, nil
	case *types.AttributeValueMemberSS:
		return map[string]any{"SS": a.Value}, nil
	case *types.AttributeValueMemberNS:
		return map[string]any{"NS": a.Value}, nil
	case *types.AttributeValueMemberBS:
		return map[string]any{"BS": a.Value}, nil
	case *types.AttributeValueMemberL:
		list := make([]any, len(a.Value))
		for i, e := range a.Value {
			var err error
			if list[i], err = valueOf(e); err != nil {
				return nil, err
			}
		}
		return map[string]any{"L": list}, nil
	case *types.AttributeValueMemberM:
		m, err := imageOf(a.Value)
		return map[string]any{"M": m}, err
	}
	return nil, fmt.Errorf("streampoller: an attribute of type %T", v)
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// eventOf is the function's event for a batch.
func eventOf(batch []record) []byte {
	b := []byte(eventHead)
	for i, r := range batch {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, r.json...)
	}
	return append(b, eventTail...)
}

const (
	eventHead = `{"Records":[`
	eventTail = `]}`
)
