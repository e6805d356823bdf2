package queuepoller

import (
	"bytes"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// record is a message in the form that Lambda gives it.
type record struct {
	events.SQSMessage
	// Lambda leaves it out where a message has no attributes.
	MD5OfMessageAttributes string `json:"md5OfMessageAttributes,omitempty"`
}

// event is what the function gets for a batch.
func (q queueFacts) event(batch []types.Message) []byte {
	event := struct{ Records []record }{make([]record, len(batch))}
	for i, m := range batch {
		event.Records[i] = q.record(m)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // else a body of many '<' would grow sixfold
	if err := enc.Encode(event); err != nil {
		panic(err) // strings cannot fail
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func (q queueFacts) record(m types.Message) record {
	r := events.SQSMessage{
		MessageId:         aws.ToString(m.MessageId),
		ReceiptHandle:     aws.ToString(m.ReceiptHandle),
		Body:              aws.ToString(m.Body),
		Attributes:        m.Attributes,
		MessageAttributes: map[string]events.SQSMessageAttribute{},
		Md5OfBody:         aws.ToString(m.MD5OfBody),
		EventSource:       "aws:sqs",
		EventSourceARN:    q.arn,
		AWSRegion:         q.region,
	}
	if r.Attributes == nil {
		r.Attributes = map[string]string{}
	}
	for name, value := range m.MessageAttributes {
		r.MessageAttributes[name] = events.SQSMessageAttribute{
			StringValue: value.StringValue, BinaryValue: value.BinaryValue,
			// Lists are not used by SQS yet; Lambda sends them empty.
			StringListValues: []string{}, BinaryListValues: [][]byte{},
			DataType: aws.ToString(value.DataType),
		}
	}
	return record{r, aws.ToString(m.MD5OfMessageAttributes)}
}
