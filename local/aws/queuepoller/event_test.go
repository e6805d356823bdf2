package queuepoller

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
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

		var records [][]byte
		for _, r := range parsed.Records {
			encoded, err := q.encode(received(r))
			require.NoError(t, err)
			records = append(records, encoded)
		}
		require.JSONEq(t, string(sample), string(event(records)))
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
		m.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String(a.DataType), StringValue: a.StringValue, BinaryValue: a.BinaryValue}
	}
	return m
}

func TestBareMessageHasAllMembers(t *testing.T) {
	encoded, err := queueFacts{arn: standardARN, region: "eu-central-1"}.encode(types.Message{})
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(encoded, &members))
	require.Equal(t, []string{
		"attributes", "awsRegion", "body", "eventSource", "eventSourceARN", "md5OfBody", "messageAttributes", "messageId", "receiptHandle",
	}, slices.Sorted(maps.Keys(members)))
	require.Equal(t, map[string]any{}, members["attributes"])
	require.Equal(t, map[string]any{}, members["messageAttributes"])
}

func TestBodiesDoNotGrowByEscapes(t *testing.T) {
	body := strings.Repeat("<&>", 1000)
	encoded, err := queueFacts{}.encode(types.Message{Body: &body})
	require.NoError(t, err)
	require.True(t, bytes.Contains(encoded, []byte(body)))
	require.NotContains(t, string(encoded), "\n")
}
