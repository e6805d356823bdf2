package dynamotest

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Client returns a client of the server of [Endpoint], for what a test does itself:
// create tables, look at items. It tries again where a connection broke, as one does
// now and then on a busy machine: a client of dynamostore.NewClient leaves that to
// the store.
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
// DynamoDB Local 1.25.1 looks through every stream that ever was, also of tables
// that were deleted, at each write to a table, in the one thread that does all of
// its work. After some hundred tables with a stream that is most of its time. So
// tests that read no stream create tables without one.
type WithoutStream struct{ *dynamodb.Client }

// CreateTable creates the table without the stream that in asks for.
func (c WithoutStream) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, opts ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	plain := *in
	plain.StreamSpecification = nil
	return c.Client.CreateTable(ctx, &plain, opts...)
}
