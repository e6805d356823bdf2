// Package rig is what the proofs share: tables on DynamoDB Local, their streams, the relay
// of the outbox as a compiled function, and the recorder of what functions do.
package rig

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/aws/streampoller"
)

// Table makes a table of records, without a stream, that goes with the test, and returns
// its name.
func Table(tb testing.TB) string {
	tb.Helper()
	return create(tb, dynamotest.WithoutStream{Client: dynamotest.Client(tb)})
}

// StreamTable is [Table] with a stream, for a test that reads it.
func StreamTable(tb testing.TB) string {
	tb.Helper()
	return create(tb, dynamotest.Client(tb))
}

func create(tb testing.TB, client dynamostore.TableCreator) string {
	tb.Helper()
	name := "proof-" + rand.Text()
	require.NoError(tb, dynamostore.CreateTable(tb.Context(), client, name))
	DeleteTable(tb, name)
	return name
}

// DeleteTable deletes the table when the test ends.
func DeleteTable(tb testing.TB, name string) {
	tb.Cleanup(func() {
		_, err := dynamotest.Client(tb).DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name})
		require.NoError(tb, err)
	})
}

// Store looks at a table's records, however slow a busy machine is.
func Store(tb testing.TB, client dynamostore.Client, table string) *dynamostore.Store {
	tb.Helper()
	store, err := dynamostore.New(client, table,
		&dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(tb, err)
	return store
}

// Scan returns all items of a table.
func Scan(tb testing.TB, table string) []map[string]types.AttributeValue {
	tb.Helper()
	return ScanOver(tb, dynamotest.Client(tb), table)
}

// ScanOver returns all items of a table of the client's database.
func ScanOver(tb testing.TB, client *dynamodb.Client, table string) (all []map[string]types.AttributeValue) {
	tb.Helper()
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(tb.Context())
		require.NoError(tb, err)
		all = append(all, page.Items...)
	}
	return all
}

// Text is the value of a text or a number, empty if the attribute is neither.
func Text(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}

// Streams returns a client of the tables' streams, and the ARN of a table's own.
func Streams(tb testing.TB, table string) (client *dynamodbstreams.Client, arn string) {
	tb.Helper()
	db := dynamotest.Client(tb)
	out, err := db.DescribeTable(tb.Context(), &dynamodb.DescribeTableInput{TableName: &table})
	require.NoError(tb, err)
	return dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: aws.String(dynamotest.Endpoint(tb)), Region: "us-east-1", Credentials: db.Options().Credentials,
	}), *out.Table.LatestStreamArn
}

// Relay starts the relay of the outbox over a table that it reaches by the endpoint. The
// destinations' queues are reached by queues.
func Relay(tb testing.TB, table, endpoint, queues string, routes map[string]string, env ...string) *runtime.Pool {
	tb.Helper()
	text, err := json.Marshal(routes)
	require.NoError(tb, err)
	return Start(tb, table, endpoint, runtime.Function{
		Path: testmain.Program(tb, "../../../lambda/functions/relay"), MaxInstances: 2, Timeout: 20 * time.Second,
		Env: append([]string{
			"AWS_ENDPOINT_URL_SQS=" + queues, schema.EnvOutboxRoutes + "=" + string(text), schema.EnvOutboxBackoff + "=20ms",
		}, env...),
	}, nil)
}

// Start starts a function over a table that it reaches by the endpoint. It ends with the test.
func Start(tb testing.TB, table, endpoint string, fn runtime.Function, options *runtime.Options) *runtime.Pool {
	tb.Helper()
	fn.Env = append([]string{
		"AWS_ACCESS_KEY_ID=idemlocal", "AWS_SECRET_ACCESS_KEY=idemlocal",
		schema.EnvTable + "=" + table, schema.EnvEndpoint + "=" + endpoint,
	}, fn.Env...)
	pool, err := runtime.Start(context.Background(), fn, options)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// Long says that the test is to take as long as it may.
func Long() bool { return os.Getenv("IDEM_LONG") == "1" }

// Feed gives the relay the table's stream from its start, until the test ends.
func Feed(tb testing.TB, relay *runtime.Pool, table string) *streampoller.Poller {
	tb.Helper()
	client, arn := Streams(tb, table)
	p, err := streampoller.Start(context.Background(), client, arn, relay.Call, &streampoller.Options{
		Filter: schema.OutboxFilter, BatchSize: 20,
		PollInterval: 50 * time.Millisecond, Backoff: 10 * time.Millisecond,
	})
	require.NoError(tb, err)
	tb.Cleanup(p.Close)
	return p
}
