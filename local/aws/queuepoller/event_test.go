package queuepoller

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
)

// Samples of what Lambda sends are taken apart into what SQS had sent, and must
// come out as they were.
func TestEventsAreAsLambdaSendsThem(t *testing.T) {
	for _, name := range []string{"sqs-standard", "sqs-fifo"} {
		sample, err := samples.Get(name)
		require.NoError(t, err)
		var parsed events.SQSEvent
		require.NoError(t, json.Unmarshal(sample, &parsed))
		q, err := factsOf(map[string]string{"QueueArn": parsed.Records[0].EventSourceARN, "VisibilityTimeout": "30"})
		require.NoError(t, err)

		var batch []types.Message
		for _, r := range parsed.Records {
			batch = append(batch, received(r))
		}
		require.JSONEq(t, string(sample), string(q.event(batch)))
	}
}

// received is the message that SQS had sent.
func received(r events.SQSMessage) types.Message {
	m := types.Message{
		MessageId: aws.String(r.MessageId), ReceiptHandle: aws.String(r.ReceiptHandle), Body: aws.String(r.Body),
		MD5OfBody: aws.String(r.Md5OfBody), Attributes: r.Attributes,
	}
	if r.Md5OfMessageAttributes != "" {
		m.MD5OfMessageAttributes = aws.String(r.Md5OfMessageAttributes)
	}
	for name, a := range r.MessageAttributes {
		if m.MessageAttributes == nil {
			m.MessageAttributes = map[string]types.MessageAttributeValue{}
		}
		m.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String(a.DataType), StringValue: a.StringValue,
			BinaryValue: a.BinaryValue}
	}
	return m
}

func TestBareMessageHasAllMembers(t *testing.T) {
	encoded := queueFacts{arn: standardARN, region: "eu-central-1"}.event([]types.Message{{}})
	require.JSONEq(t, `{"Records": [{
		"messageId": "", "receiptHandle": "", "body": "", "md5OfBody": "", "attributes": {}, "messageAttributes": {},
		"eventSource": "aws:sqs", "eventSourceARN": "`+standardARN+`", "awsRegion": "eu-central-1"
	}]}`, string(encoded))
}

func TestBodiesDoNotGrowByEscapes(t *testing.T) {
	body := strings.Repeat("<&>", 1000)
	encoded := queueFacts{}.event([]types.Message{{Body: &body}})
	require.True(t, bytes.Contains(encoded, []byte(body)))
	require.NotContains(t, string(encoded), "\n")
}
