package dynamotest

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

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
func (c WithoutStream) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, opts ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	plain := *in
	plain.StreamSpecification = nil
	return c.Client.CreateTable(ctx, &plain, opts...)
}
