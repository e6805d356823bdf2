package samples_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"sort"
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

// Values that the service sends and the Go type does not have, by path. Null
// values need no entry: they decode to a zero value.
var (
	functionURLExtras = []string{"requestContext.routeKey", "requestContext.stage", "routeKey"}
	noExtras          []string
)

// contracts says, for every sample, which type it decodes into.
var contracts = map[string]struct {
	into   any
	extras []string
}{
	"apigw-v2-none":             {events.APIGatewayV2HTTPRequest{}, noExtras},
	"apigw-v2-jwt":              {events.APIGatewayV2HTTPRequest{}, noExtras},
	"apigw-v2-iam":              {events.APIGatewayV2HTTPRequest{}, noExtras},
	"apigw-v2-lambda-simple":    {events.APIGatewayV2HTTPRequest{}, noExtras},
	"apigw-v2-lambda-policy":    {events.APIGatewayV2HTTPRequest{}, noExtras},
	"apigw-v2-base64":           {events.APIGatewayV2HTTPRequest{}, noExtras},
	"apigw-v2-cookies":          {events.APIGatewayV2HTTPRequest{}, noExtras},
	"apigw-v2-repeated-headers": {events.APIGatewayV2HTTPRequest{}, noExtras},
	"apigw-v1-none":             {events.APIGatewayProxyRequest{}, noExtras},
	"apigw-v1-cognito":          {events.APIGatewayProxyRequest{}, noExtras},
	"apigw-v1-api-key":          {events.APIGatewayProxyRequest{}, noExtras},
	"apigw-v1-iam":              {events.APIGatewayProxyRequest{}, []string{"requestContext.identity.principalOrgId"}},
	"apigw-v1-custom-domain":    {events.APIGatewayProxyRequest{}, noExtras},
	"apigw-v1-lambda":           {events.APIGatewayProxyRequest{}, noExtras},
	"apigw-v1-base64":           {events.APIGatewayProxyRequest{}, noExtras},
	"apigw-v1-repeated-headers": {events.APIGatewayProxyRequest{}, noExtras},
	"furl-none":                 {events.LambdaFunctionURLRequest{}, functionURLExtras},
	"furl-iam":                  {events.LambdaFunctionURLRequest{}, functionURLExtras},
	"furl-repeated-headers":     {events.LambdaFunctionURLRequest{}, functionURLExtras},
	"furl-base64":               {events.LambdaFunctionURLRequest{}, functionURLExtras},
	"alb-single":                {events.ALBTargetGroupRequest{}, noExtras},
	"alb-multi":                 {events.ALBTargetGroupRequest{}, noExtras},
	"alb-base64":                {events.ALBTargetGroupRequest{}, noExtras},
	"sqs-standard":              {events.SQSEvent{}, noExtras},
	"sqs-fifo":                  {events.SQSEvent{}, noExtras},
	"sns":                       {events.SNSEvent{}, noExtras},
	"eventbridge-custom":        {events.EventBridgeEvent{}, noExtras},
	"eventbridge-scheduled":     {events.EventBridgeEvent{}, noExtras},
	"s3":                        {events.S3Event{}, noExtras},
	"kinesis":                   {events.KinesisEvent{}, noExtras},
	"dynamodb-stream":           {events.DynamoDBEvent{}, noExtras},
	"kafka-msk":                 {events.KafkaEvent{}, noExtras},
	"async-direct":              {directEvent{}, noExtras},
	"stepfunctions-task":        {taskEvent{}, noExtras},
}

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
		require.Contains(t, contracts, name, "every sample has a contract in this test")
		require.Regexp(t, `(?m)^//\t`+name+` `, string(doc), "every sample is explained in doc.go")
	}
	require.Len(t, contracts, len(onDisk))
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

// Decoding a sample into its Go type and encoding it again keeps every value.
func TestTypesKeepEveryValue(t *testing.T) {
	for name, contract := range contracts {
		t.Run(name, func(t *testing.T) {
			raw := get(t, name)
			typed := reflect.New(reflect.TypeOf(contract.into))
			require.NoError(t, json.Unmarshal(raw, typed.Interface()))
			encoded, err := json.Marshal(typed.Interface())
			require.NoError(t, err)

			var sent, kept any
			require.NoError(t, json.Unmarshal(raw, &sent))
			require.NoError(t, json.Unmarshal(encoded, &kept))
			require.Equal(t, contract.extras, lost("", sent, kept))
		})
	}
}

// lost lists the paths of values in sent that kept does not have or has
// differently. Nulls and empty containers hold no value.
func lost(path string, sent, kept any) []string {
	var paths []string
	switch sent := sent.(type) {
	case nil:
	case map[string]any:
		keptMap, _ := kept.(map[string]any)
		for _, name := range sortedKeys(sent) {
			paths = append(paths, lost(strings.TrimPrefix(path+"."+name, "."), sent[name], keptMap[name])...)
		}
	case []any:
		keptList, _ := kept.([]any)
		for i, element := range sent {
			var keptElement any
			if i < len(keptList) {
				keptElement = keptList[i]
			}
			paths = append(paths, lost(path+"["+strconv.Itoa(i)+"]", element, keptElement)...)
		}
	case bool:
		// A false that the type leaves out when encoding is not lost.
		if keptBool, _ := kept.(bool); keptBool != sent {
			paths = append(paths, path)
		}
	case float64:
		// The epoch types go through nanoseconds in a float64, good to 1 µs.
		if keptNumber, ok := kept.(float64); !ok || math.Abs(keptNumber-sent) > 1e-6 {
			paths = append(paths, path)
		}
	default:
		if !reflect.DeepEqual(sent, kept) {
			paths = append(paths, path)
		}
	}
	return paths
}

func TestLostFindsLosses(t *testing.T) {
	var sent, kept any
	require.NoError(t, json.Unmarshal([]byte(`{"a":1,"b":{"c":"x","d":null},"e":[1,{"f":true}],"g":false,"h":""}`), &sent))
	require.NoError(t, json.Unmarshal([]byte(`{"a":2,"b":{},"e":[1],"z":1}`), &kept))
	require.Equal(t, []string{"a", "b.c", "e[1].f", "h"}, lost("", sent, kept))
}

func TestHTTPSamplesCarryKeyAndPayment(t *testing.T) {
	seen := 0
	for _, name := range samples.Names() {
		var event struct {
			Headers           map[string]string   `json:"headers"`
			MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
			Body              string              `json:"body"`
			IsBase64Encoded   bool                `json:"isBase64Encoded"`
			RequestContext    struct {
				Time        string `json:"time"`
				TimeEpoch   int64  `json:"timeEpoch"`
				RequestTime string `json:"requestTime"`
				RequestMS   int64  `json:"requestTimeEpoch"`
			} `json:"requestContext"`
		}
		if !strings.HasPrefix(name, "apigw-") && !strings.HasPrefix(name, "furl-") && !strings.HasPrefix(name, "alb-") {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			require.NoError(t, json.Unmarshal(get(t, name), &event))
			headers := map[string]string{}
			for header, values := range event.MultiValueHeaders {
				headers[strings.ToLower(header)] = values[len(values)-1]
			}
			for header, value := range event.Headers {
				if event.MultiValueHeaders != nil {
					require.Equal(t, headers[strings.ToLower(header)], value, "the single map holds the last value")
				}
				headers[strings.ToLower(header)] = value
			}
			require.Equal(t, idempotencyKey, headers["idempotency-key"])

			body := []byte(event.Body)
			require.Equal(t, strings.HasSuffix(name, "-base64"), event.IsBase64Encoded)
			if event.IsBase64Encoded {
				var err error
				body, err = base64.StdEncoding.DecodeString(event.Body)
				require.NoError(t, err)
			}
			requirePayment(t, body)
			if length, ok := headers["content-length"]; ok {
				require.Equal(t, strconv.Itoa(len(body)), length)
			}

			at, ms := event.RequestContext.Time, event.RequestContext.TimeEpoch
			if strings.HasPrefix(name, "apigw-v1") {
				at, ms = event.RequestContext.RequestTime, event.RequestContext.RequestMS
			}
			if !strings.HasPrefix(name, "alb-") {
				parsed, err := time.Parse("02/Jan/2006:15:04:05 -0700", at)
				require.NoError(t, err)
				require.Equal(t, parsed.Unix(), ms/1000)
			}
		})
	}
	require.Equal(t, 23, seen)
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

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
