package dynamotest

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

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
