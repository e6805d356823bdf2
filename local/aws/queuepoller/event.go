package queuepoller

import (
	"bytes"
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// record is a message in the form that Lambda gives it.
type record struct {
	MessageID              string               `json:"messageId"`
	ReceiptHandle          string               `json:"receiptHandle"`
	Body                   string               `json:"body"`
	Attributes             map[string]string    `json:"attributes"`
	MessageAttributes      map[string]attribute `json:"messageAttributes"`
	MD5OfBody              string               `json:"md5OfBody"`
	MD5OfMessageAttributes string               `json:"md5OfMessageAttributes,omitempty"`
	EventSource            string               `json:"eventSource"`
	EventSourceARN         string               `json:"eventSourceARN"`
	AWSRegion              string               `json:"awsRegion"`
}

type attribute struct {
	StringValue *string `json:"stringValue,omitempty"`
	BinaryValue []byte  `json:"binaryValue,omitempty"`
	// Lists are not used by SQS yet; Lambda sends them empty.
	StringListValues []string `json:"stringListValues"`
	BinaryListValues [][]byte `json:"binaryListValues"`
	DataType         string   `json:"dataType"`
}

const (
	eventHead = `{"Records":[`
	eventTail = `]}`
	frame     = eventHead + eventTail
)

// encode is a message as part of an event.
func (q queueFacts) encode(m types.Message) ([]byte, error) {
	r := record{
		MessageID:              aws.ToString(m.MessageId),
		ReceiptHandle:          aws.ToString(m.ReceiptHandle),
		Body:                   aws.ToString(m.Body),
		Attributes:             m.Attributes,
		MessageAttributes:      map[string]attribute{},
		MD5OfBody:              aws.ToString(m.MD5OfBody),
		MD5OfMessageAttributes: aws.ToString(m.MD5OfMessageAttributes),
		EventSource:            "aws:sqs",
		EventSourceARN:         q.arn,
		AWSRegion:              q.region,
	}
	if r.Attributes == nil {
		r.Attributes = map[string]string{}
	}
	for name, value := range m.MessageAttributes {
		r.MessageAttributes[name] = attribute{
			StringValue: value.StringValue, BinaryValue: value.BinaryValue,
			StringListValues: []string{}, BinaryListValues: [][]byte{},
			DataType: aws.ToString(value.DataType),
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // else a body of many '<' would grow sixfold
	err := enc.Encode(r)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// event puts encoded messages together.
func event(records [][]byte) []byte {
	out := append([]byte(nil), eventHead...)
	out = append(out, bytes.Join(records, []byte(","))...)
	return append(out, eventTail...)
}
