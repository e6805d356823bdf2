// Package dynamotest gives tests a DynamoDB Local.
package dynamotest

import (
	"context"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
)

// One server for the whole test process. It is not closed: it ends with the
// process, which is the only moment when no test can want it any more.
var shared = sync.OnceValues(func() (*child.Server, error) {
	return dynamodblocal.Start(context.Background(), nil)
})

// Endpoint returns the URL of a DynamoDB Local that all tests of the process
// share, so each test should use a table of its own with a random name. It is the one of
// IDEM_DYNAMODB_ENDPOINT if that is set; otherwise one is provisioned at the first call and
// ends with the process.
//
// If none can be provisioned, the test is skipped with the reason, or fails if
// IDEM_REQUIRE_DYNAMODB is 1. Call it from the test's own goroutine; several tests may call
// it at once.
func Endpoint(tb testing.TB) string {
	tb.Helper()
	return childtest.Need(tb, "DynamoDB Local", shared).Endpoint()
}

// Client returns a client of the server of [Endpoint], with which a test creates tables and
// reads items. It tries again after a broken connection, which happens on a busy machine. A
// client of dynamostore.NewClient leaves that to the store.
func Client(tb testing.TB) *dynamodb.Client {
	tb.Helper()
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(Endpoint(tb)),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", ""),
		Retryer:      retry.NewStandard(),
	})
}

// WithoutStream is a client that creates its tables without their stream.
//
// At each write to a table DynamoDB Local 1.25.1 searches every stream that ever existed,
// even those of deleted tables, in the one thread that does all of its work. After some
// hundred tables with a stream this takes most of its time. Tests that read no stream
// therefore create tables without one.
type WithoutStream struct{ *dynamodb.Client }

// CreateTable creates the table without the stream that in asks for.
func (c WithoutStream) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	plain := *in
	plain.StreamSpecification = nil
	return c.Client.CreateTable(ctx, &plain, opts...)
}
