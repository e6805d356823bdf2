package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/dynamostore"
)

const (
	recordsTable = "idem"
	ordersTable  = "orders"
)

func newDynamoDB(endpoint string) (*dynamodb.Client, error) {
	return dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: endpoint})
}

// createTables makes the tables, unless a given endpoint has them.
func createTables(ctx context.Context, client *dynamodb.Client) error {
	if dynamostore.Check(ctx, client, recordsTable) != nil {
		if err := dynamostore.CreateTable(ctx, client, recordsTable); err != nil {
			return fmt.Errorf("cannot create the table %s: %w", recordsTable, err)
		}
	}
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: aws.String(ordersTable), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("customer"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("order_id"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("customer"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("order_id"), KeyType: types.KeyTypeRange},
		},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return fmt.Errorf("cannot create the table %s: %w", ordersTable, err)
	}
	return dynamodb.NewTableExistsWaiter(client).Wait(ctx,
		&dynamodb.DescribeTableInput{TableName: aws.String(ordersTable)}, time.Minute)
}
