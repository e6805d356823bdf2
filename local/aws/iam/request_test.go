package iam

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	dynamo "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	snsclient "github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	sqsclient "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

// clients are those of the SDK, with one server.
type clients struct {
	tables  *dynamo.Client
	streams *dynamodbstreams.Client
	queues  *sqsclient.Client
	topics  *snsclient.Client
}

// against makes clients of a server.
func against(t *testing.T, h http.HandlerFunc) clients {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	own := credentials.NewStaticCredentialsProvider("a", "b", "")
	return clients{
		dynamo.New(dynamo.Options{BaseEndpoint: &s.URL, Region: Region, Credentials: own, Retryer: aws.NopRetryer{}}),
		dynamodbstreams.New(dynamodbstreams.Options{BaseEndpoint: &s.URL, Region: Region, Credentials: own,
			Retryer: aws.NopRetryer{}}),
		sqsclient.New(sqsclient.Options{BaseEndpoint: &s.URL, Region: Region, Credentials: own, Retryer: aws.NopRetryer{}}),
		snsclient.New(snsclient.Options{BaseEndpoint: &s.URL, Region: Region, Credentials: own, Retryer: aws.NopRetryer{}}),
	}
}

func keyOf(table string) string { return map[string]string{"records": "pk", "orders": "id"}[table] }

type attributes = map[string]types.AttributeValue

func text(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }

// key is a key of records, or the beginning of an item.
func key(v string) attributes { return attributes{"pk": text(v), "sk": text("-")} }

// shown is a request in short: without the beginning of the ARN, with its leading keys, or a question mark if they are
// not known.
func shown(q Request) string {
	service, _, _ := strings.Cut(q.Action, ":")
	line := q.Action + " " + strings.TrimPrefix(q.Resource, "arn:aws:"+service+":us-east-1:000000000000:")
	if keys, known := q.Context[leadingKeys]; len(keys) > 0 {
		line += " " + strings.Join(keys, "+")
	} else if !known && service == "dynamodb" {
		line += " ?"
	}
	if within := q.Context[enclosing]; within != nil {
		line += " in " + within[0]
	}
	return line
}

func call[In, Out, Options any](f func(context.Context, *In, ...func(*Options)) (*Out, error), in *In) func(
	context.Context) error {
	return func(ctx context.Context) error { _, err := f(ctx, in); return err }
}

// What the SDK's clients send needs these permissions.
func TestRequests(t *testing.T) {
	records := aws.String("records")
	stream := aws.String("arn:aws:dynamodb:ddblocal:000000000000:table/records/stream/2026-11-28T10:16:41.276")
	queue := aws.String("http://127.0.0.1:1/000000000000/jobs.fifo")
	topic := aws.String("arn:aws:sns:us-east-1:000000000000:events")
	item := key("a#1")
	item["parts"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{text("1"), text("2")}}
	condition := aws.String("attribute_exists(pk)")
	got := make(chan string, 1)
	c := against(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests, err := Requests(r.Header, body, keyOf)
		var all []string
		for _, q := range requests {
			all = append(all, shown(q))
		}
		if err != nil {
			all = append(all, err.Error())
		}
		got <- strings.Join(all, ", ")
	})
	for _, tc := range []struct {
		call func(context.Context) error
		want string
	}{
		{call(c.tables.PutItem, &dynamo.PutItemInput{TableName: records, Item: item}),
			"dynamodb:PutItem table/records a#1"},
		{call(c.tables.PutItem, &dynamo.PutItemInput{TableName: aws.String("others"), Item: item}),
			"dynamodb:PutItem table/others ?"},
		{call(c.tables.GetItem, &dynamo.GetItemInput{Key: key("a#1"),
			TableName: aws.String("arn:aws:dynamodb:us-east-1:000000000000:table/records")}),
			"dynamodb:GetItem table/records a#1"},
		{call(c.tables.GetItem, &dynamo.GetItemInput{Key: key("a#1"),
			TableName: aws.String("arn:aws:dynamodb:eu-west-1:111122223333:table/records")}),
			"dynamodb:GetItem arn:aws:dynamodb:eu-west-1:111122223333:table/records a#1"},
		{call(c.tables.UpdateItem, &dynamo.UpdateItemInput{TableName: aws.String("orders"),
			Key: attributes{"id": &types.AttributeValueMemberN{Value: "17"}}, UpdateExpression: aws.String("SET a = :a"),
			ExpressionAttributeValues: attributes{":a": text("x")}}),
			"dynamodb:UpdateItem table/orders 17"},
		{call(c.tables.DeleteItem, &dynamo.DeleteItemInput{TableName: aws.String("orders"),
			Key: attributes{"id": &types.AttributeValueMemberB{Value: []byte("b")}}}),
			"dynamodb:DeleteItem table/orders Yg=="},
		{call(c.tables.Query, &dynamo.QueryInput{TableName: records,
			KeyConditionExpression:    aws.String("(#0 = :0) AND (begins_with (#1, :1))"),
			ExpressionAttributeNames:  map[string]string{"#0": "pk", "#1": "sk"},
			ExpressionAttributeValues: attributes{":0": text("a#1"), ":1": text("b")}}),
			"dynamodb:Query table/records a#1"},
		{call(c.tables.Query, &dynamo.QueryInput{TableName: records,
			KeyConditionExpression:    aws.String("sk=:s and pk=:p"),
			ExpressionAttributeValues: attributes{":p": text("a#1"), ":s": text("b")}}),
			"dynamodb:Query table/records a#1"},
		{call(c.tables.Query, &dynamo.QueryInput{TableName: records, IndexName: aws.String("open"),
			KeyConditionExpression: aws.String("shard = :s"), ExpressionAttributeValues: attributes{":s": text("b")}}),
			"dynamodb:Query table/records/index/open ?"},
		{call(c.tables.Scan, &dynamo.ScanInput{TableName: records, IndexName: aws.String("open")}),
			"dynamodb:Scan table/records/index/open"},
		{call(c.tables.BatchGetItem, &dynamo.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			"records": {Keys: []attributes{key("a#1"), key("a#2")}}, "others": {Keys: []attributes{key("b")}}}}),
			"dynamodb:BatchGetItem table/others ?, dynamodb:BatchGetItem table/records a#1+a#2"},
		{call(c.tables.BatchGetItem, &dynamo.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			"records": {Keys: []attributes{{"id": text("no key of it")}, key("a#1")}}}}),
			"dynamodb:BatchGetItem table/records ?"},
		{call(c.tables.BatchWriteItem, &dynamo.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{
			"records": {{PutRequest: &types.PutRequest{Item: item}}, {DeleteRequest: &types.DeleteRequest{Key: key("b#1")}}}}}),
			"dynamodb:BatchWriteItem table/records a#1+b#1"},
		{call(c.tables.TransactWriteItems, &dynamo.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: records, Item: item}},
			{Update: &types.Update{TableName: records, Key: key("a#2"), UpdateExpression: condition}},
			{Delete: &types.Delete{TableName: records, Key: key("a#3")}},
			{ConditionCheck: &types.ConditionCheck{TableName: aws.String("orders"), ConditionExpression: condition,
				Key: attributes{"id": text("o")}}}}}),
			"dynamodb:PutItem table/records a#1 in TransactWriteItems, dynamodb:UpdateItem table/records a#2 in " +
				"TransactWriteItems, dynamodb:DeleteItem table/records a#3 in TransactWriteItems, " +
				"dynamodb:ConditionCheckItem table/orders o in TransactWriteItems"},
		{call(c.tables.TransactGetItems, &dynamo.TransactGetItemsInput{TransactItems: []types.TransactGetItem{
			{Get: &types.Get{TableName: records, Key: key("a#1")}}}}),
			"dynamodb:GetItem table/records a#1 in TransactGetItems"},
		{call(c.tables.DescribeTable, &dynamo.DescribeTableInput{TableName: records}),
			"dynamodb:DescribeTable table/records"},
		{call(c.tables.ListTagsOfResource, &dynamo.ListTagsOfResourceInput{
			ResourceArn: aws.String("arn:aws:dynamodb:ddblocal:000000000000:table/records")}),
			"dynamodb:ListTagsOfResource table/records"},
		{call(c.tables.ListTables, &dynamo.ListTablesInput{}),
			"dynamodb:ListTables table/*"},
		{call(c.tables.DescribeLimits, &dynamo.DescribeLimitsInput{}),
			"dynamodb:DescribeLimits "},
		{call(c.streams.ListStreams, &dynamodbstreams.ListStreamsInput{TableName: records}),
			"dynamodb:ListStreams table/records/stream/local"},
		{call(c.streams.DescribeStream, &dynamodbstreams.DescribeStreamInput{StreamArn: stream}),
			"dynamodb:DescribeStream table/records/stream/local"},
		{call(c.streams.GetShardIterator, &dynamodbstreams.GetShardIteratorInput{StreamArn: stream,
			ShardId: aws.String("s"), ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon}),
			"dynamodb:GetShardIterator table/records/stream/local"},
		{call(c.streams.GetRecords, &dynamodbstreams.GetRecordsInput{ShardIterator: aws.String(*stream + "|1|AAAA")}),
			"dynamodb:GetRecords table/records/stream/local"},

		{call(c.queues.SendMessage, &sqsclient.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("m")}),
			"sqs:SendMessage jobs.fifo"},
		{call(c.queues.SendMessageBatch, &sqsclient.SendMessageBatchInput{QueueUrl: queue,
			Entries: []sqstypes.SendMessageBatchRequestEntry{{Id: aws.String("1"), MessageBody: aws.String("m")}}}),
			"sqs:SendMessage jobs.fifo"},
		{call(c.queues.ReceiveMessage, &sqsclient.ReceiveMessageInput{QueueUrl: queue}),
			"sqs:ReceiveMessage jobs.fifo"},
		{call(c.queues.DeleteMessageBatch, &sqsclient.DeleteMessageBatchInput{QueueUrl: queue,
			Entries: []sqstypes.DeleteMessageBatchRequestEntry{{Id: aws.String("1"), ReceiptHandle: aws.String("h")}}}),
			"sqs:DeleteMessage jobs.fifo"},
		{call(c.queues.ChangeMessageVisibility, &sqsclient.ChangeMessageVisibilityInput{QueueUrl: queue,
			ReceiptHandle: aws.String("h")}),
			"sqs:ChangeMessageVisibility jobs.fifo"},
		{call(c.queues.GetQueueAttributes, &sqsclient.GetQueueAttributesInput{QueueUrl: queue}),
			"sqs:GetQueueAttributes jobs.fifo"},
		{call(c.queues.GetQueueUrl, &sqsclient.GetQueueUrlInput{QueueName: aws.String("jobs.fifo")}),
			"sqs:GetQueueUrl jobs.fifo"},
		{call(c.queues.ListQueues, &sqsclient.ListQueuesInput{}),
			"sqs:ListQueues "},
		{call(c.queues.StartMessageMoveTask, &sqsclient.StartMessageMoveTaskInput{
			SourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:dead")}),
			"sqs:StartMessageMoveTask dead"},

		{call(c.topics.Publish, &snsclient.PublishInput{TopicArn: topic, Message: aws.String("m")}),
			"sns:Publish events"},
		{call(c.topics.Publish, &snsclient.PublishInput{PhoneNumber: aws.String("+358"), Message: aws.String("m")}),
			"sns:Publish +358"},
		{call(c.topics.PublishBatch, &snsclient.PublishBatchInput{TopicArn: topic,
			PublishBatchRequestEntries: []snstypes.PublishBatchRequestEntry{{Id: aws.String("1"), Message: aws.String("m")}}}),
			"sns:Publish events"},
		{call(c.topics.Subscribe, &snsclient.SubscribeInput{TopicArn: topic, Protocol: aws.String("sqs")}),
			"sns:Subscribe events"},
		{call(c.topics.CreateTopic, &snsclient.CreateTopicInput{Name: aws.String("events")}),
			"sns:CreateTopic events"},
		{call(c.topics.ListTopics, &snsclient.ListTopicsInput{}),
			"sns:ListTopics *"},
	} {
		err := tc.call(t.Context()) // there is no answer
		select {
		case line := <-got:
			require.Equal(t, tc.want, line)
		default:
			require.NoError(t, err, "%s was not sent", tc.want)
		}
	}
}

// The query protocol of SQS, which old clients speak.
func TestQueueByQuery(t *testing.T) {
	all, err := Requests(http.Header{}, []byte("Action=SendMessageBatch&Version=2012-11-05&"+
		"QueueUrl=http%3A%2F%2F127.0.0.1%3A1%2F000000000000%2Fjobs"), keyOf)
	require.NoError(t, err)
	require.Equal(t, "sqs:SendMessage jobs", shown(all[0]))
}

func TestWhatIsNoRequest(t *testing.T) {
	target := func(name string) http.Header { return http.Header{"X-Amz-Target": {name}} }
	for _, tc := range []struct {
		header http.Header
		body   string
		want   string
	}{
		{nil, "", "the request names no operation of DynamoDB, SQS or SNS"},
		{nil, "{}", "the request names no operation"},
		{target("Kinesis_20131202.PutRecord"), "{}", "the request names no operation"},
		{target("DynamoDB_20120810.PutItem"), "[]", "PutItem of DynamoDB: json: cannot unmarshal"},
		{target("AmazonSQS.SendMessage"), "{", "SendMessage of SQS: unexpected end"},
		{target("DynamoDB_20120810.ExecuteStatement"), "{}", "permissions of PartiQL are not evaluated"},
	} {
		_, err := Requests(tc.header, []byte(tc.body), keyOf)
		require.ErrorContains(t, err, tc.want)
	}
}

// What no client sends does not panic.
func TestOddBodies(t *testing.T) {
	for _, body := range []string{"null", `{"RequestItems":{"t":null}}`, `{"RequestItems":{"t":[null]}}`,
		`{"RequestItems":{"t":{"Keys":[null,{}]}}}`, `{"TransactItems":[null,{"Put":null},{"Else":{}}]}`,
		`{"TableName":"records","Key":{"pk":1}}`, `{"TableName":"arn:","IndexName":"i"}`, `{"QueueUrl":"/"}`} {
		for _, target := range []string{"DynamoDB_20120810.BatchGetItem", "DynamoDB_20120810.TransactWriteItems",
			"DynamoDB_20120810.GetItem", "DynamoDBStreams_20120810.GetRecords", "AmazonSQS.SendMessage"} {
			_, err := Requests(http.Header{"X-Amz-Target": {target}}, []byte(body), keyOf)
			require.NoError(t, err, "%s %s", target, body)
		}
	}
}
