package samples_test

import (
	"bytes"
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
	"apigw-v2-": func() any { return new(events.APIGatewayV2HTTPRequest) },
	"apigw-v1-": func() any { return new(events.APIGatewayProxyRequest) },
	"furl-":     func() any { return new(events.LambdaFunctionURLRequest) },
	"alb-":      func() any { return new(events.ALBTargetGroupRequest) },
	"sqs-":      func() any { return new(events.SQSEvent) }, "sns": func() any { return new(events.SNSEvent) },
	"eventbridge-": func() any { return new(events.EventBridgeEvent) }, "s3": func() any { return new(events.S3Event) },
	"kinesis":   func() any { return new(events.KinesisEvent) },
	"dynamodb-": func() any { return new(events.DynamoDBEvent) },
	"kafka-":    func() any { return new(events.KafkaEvent) }, "async-": func() any { return new(directEvent) },
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
	bare, full := get(t, "sqs-fifo"), get(t, "sqs-fifo.json")
	require.Equal(t, bare, full)
	bare[0] = 'x'
	require.Equal(t, full, get(t, "sqs-fifo"), "callers cannot change the sample")

	for _, name := range []string{"", ".json", "sqs", "../go.mod", "doc.go"} {
		_, err := samples.Get(name)
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

func get(t *testing.T, name string) []byte {
	t.Helper()
	event, err := samples.Get(name)
	require.NoError(t, err)
	return event
}
