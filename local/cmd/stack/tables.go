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
func createTables(ctx context.Context, endpoint string) error {
	client, err := newDynamoDB(endpoint)
	if err != nil {
		return err
	}
	if dynamostore.Check(ctx, client, recordsTable) != nil {
		if err := dynamostore.CreateTable(ctx, client, recordsTable); err != nil {
			return fmt.Errorf("cannot create the table %s: %w", recordsTable, err)
		}
	}
	_, err = client.CreateTable(ctx, &dynamodb.CreateTableInput{
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
	var exists *types.ResourceInUseException
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("cannot create the table %s: %w", ordersTable, err)
	}
	return dynamodb.NewTableExistsWaiter(client).Wait(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(ordersTable)}, time.Minute)
}

// emptyTable deletes every item, which leaves the table's stream in place, and
// returns how many there were.
func emptyTable(ctx context.Context, client *dynamodb.Client, table string) (deleted int, err error) {
	described, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return 0, err
	}
	keys := described.Table.KeySchema
	scan := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &table})
	for scan.HasMorePages() {
		page, err := scan.NextPage(ctx)
		if err != nil {
			return deleted, err
		}
		for _, item := range page.Items {
			key := map[string]types.AttributeValue{}
			for _, k := range keys {
				key[*k.AttributeName] = item[*k.AttributeName]
			}
			if _, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &table, Key: key}); err != nil {
				return deleted, err
			}
			deleted++
		}
	}
	return deleted, nil
}
