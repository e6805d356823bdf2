package samples_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
)

const idempotencyKey = "8e03978e-40d5-43e8-bc93-6894a57f9324"

type payment struct {
	PaymentID string `json:"paymentId"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Source    string `json:"source"`
	Reference string `json:"reference"`
}

type directEvent struct {
	payment
	IdempotencyKey string `json:"idempotencyKey"`
}

type taskEvent struct {
	ExecutionID        string    `json:"executionId"`
	ExecutionStartTime time.Time `json:"executionStartTime"`
	StateName          string    `json:"stateName"`
	StateEnteredTime   time.Time `json:"stateEnteredTime"`
	RetryCount         int       `json:"retryCount"`
	TaskToken          string    `json:"taskToken"`
	Input              payment   `json:"input"`
}

// kinds are the Go types of the samples, by the beginnings of their names.
var kinds = map[string]func() any{
	"apigw-v2-": func() any { return new(events.APIGatewayV2HTTPRequest) }, "apigw-v1-": func() any { return new(events.APIGatewayProxyRequest) },
	"furl-": func() any { return new(events.LambdaFunctionURLRequest) }, "alb-": func() any { return new(events.ALBTargetGroupRequest) },
	"sqs-": func() any { return new(events.SQSEvent) }, "sns": func() any { return new(events.SNSEvent) },
	"eventbridge-": func() any { return new(events.EventBridgeEvent) }, "s3": func() any { return new(events.S3Event) },
	"kinesis": func() any { return new(events.KinesisEvent) }, "dynamodb-": func() any { return new(events.DynamoDBEvent) },
	"kafka-": func() any { return new(events.KafkaEvent) }, "async-": func() any { return new(directEvent) },
	"stepfunctions-": func() any { return new(taskEvent) },
}

// extras are members that a service sends and its Go type does not have, if only as null.
var extras = map[string]string{"furl-": "routeKey", "apigw-v1-": "principalOrgId"}

func TestNames(t *testing.T) {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	var onDisk []string
	for _, file := range files {
		if name, ok := strings.CutSuffix(file.Name(), ".json"); ok {
			onDisk = append(onDisk, name)
		}
	}
	require.Equal(t, onDisk, samples.Names(), "every file is listed, sorted")

	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for _, name := range samples.Names() {
		require.Regexp(t, `(?m)^//\t`+name+` `, string(doc), "every sample is explained in doc.go")
	}
}

func TestGet(t *testing.T) {
	bare, err := samples.Get("sqs-fifo")
	require.NoError(t, err)
	full, err := samples.Get("sqs-fifo.json")
	require.NoError(t, err)
	require.Equal(t, bare, full)

	bare[0] = 'x'
	again, err := samples.Get("sqs-fifo")
	require.NoError(t, err)
	require.Equal(t, full, again, "callers cannot change the sample")

	for _, name := range []string{"", ".json", "sqs", "../go.mod", "doc.go"} {
		_, err = samples.Get(name)
		require.ErrorContains(t, err, strconv.Quote(name))
		require.ErrorContains(t, err, "apigw-v2-jwt, ")
	}
}

// Every sample has a Go type, which knows its members.
func TestTypesKnowEveryMember(t *testing.T) {
	for _, name := range samples.Names() {
		found := 0
		for prefix, into := range kinds {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			found++
			d := json.NewDecoder(bytes.NewReader(get(t, name)))
			d.DisallowUnknownFields()
			err := d.Decode(into())
			for which, extra := range extras {
				if err != nil && strings.HasPrefix(name, which) {
					require.ErrorContains(t, err, extra, name)
					err = json.Unmarshal(get(t, name), into())
				}
			}
			require.NoError(t, err, name)
		}
		require.Equal(t, 1, found, name)
	}
}

func TestMessageSamplesCarryPayments(t *testing.T) {
	for _, name := range []string{"sqs-standard", "sqs-fifo"} {
		event := decode[events.SQSEvent](t, name)
		require.Len(t, event.Records, 3)
		for _, record := range event.Records {
			requirePayment(t, []byte(record.Body))
			digest := md5.Sum([]byte(record.Body))
			require.Equal(t, hex.EncodeToString(digest[:]), record.Md5OfBody)
			require.Equal(t, name == "sqs-fifo", record.Attributes["MessageGroupId"] != "")
		}
	}
	requirePayment(t, []byte(decode[events.SNSEvent](t, "sns").Records[0].SNS.Message))
	requirePayment(t, decode[events.EventBridgeEvent](t, "eventbridge-custom").Detail)
	for _, record := range decode[events.KinesisEvent](t, "kinesis").Records {
		requirePayment(t, record.Kinesis.Data)
		require.Equal(t, "shardId-000000000006:"+record.Kinesis.SequenceNumber, record.EventID)
	}
	for partition, records := range decode[events.KafkaEvent](t, "kafka-msk").Records {
		for _, record := range records {
			require.Equal(t, partition, record.Topic+"-"+strconv.FormatInt(record.Partition, 10))
			value, err := base64.StdEncoding.DecodeString(record.Value)
			require.NoError(t, err)
			requirePayment(t, value)
			require.Equal(t, idempotencyKey, string(record.Headers[0]["idempotency-key"]))
		}
	}
	changes := decode[events.DynamoDBEvent](t, "dynamodb-stream").Records
	require.Len(t, changes, 3)
	require.Equal(t, "dynamodb.amazonaws.com", changes[2].UserIdentity.PrincipalID, "the removal is TTL's")
	require.Equal(t, "in/2026-11-21/batch 007 (final).csv", decode[events.S3Event](t, "s3").Records[0].S3.Object.URLDecodedKey)
	requirePayment(t, get(t, "async-direct"))
	require.NotEmpty(t, decode[taskEvent](t, "stepfunctions-task").Input.PaymentID)
}

func get(t *testing.T, name string) []byte {
	t.Helper()
	event, err := samples.Get(name)
	require.NoError(t, err)
	return event
}

func decode[T any](t *testing.T, name string) T {
	t.Helper()
	var event T
	require.NoError(t, json.Unmarshal(get(t, name), &event))
	return event
}

func requirePayment(t *testing.T, raw []byte) {
	t.Helper()
	var p payment
	require.NoError(t, json.Unmarshal(raw, &p))
	require.True(t, strings.HasPrefix(p.PaymentID, "pay_"), "payment in %s", raw)
	require.Positive(t, p.Amount)
	require.Equal(t, "EUR", p.Currency)
}
