// Command bare is what local/measure/size compares with: a Lambda handler that makes the
// same DynamoDB calls by hand.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type payment struct{ ID string }

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		panic(err)
	}
	client, table := dynamodb.NewFromConfig(cfg), os.Getenv("IDEM_TABLE")
	lambda.Start(func(ctx context.Context, p payment) (json.RawMessage, error) {
		key := map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: p.ID},
			"sk": &types.AttributeValueMemberS{Value: "#"},
		}
		if _, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: key}); err != nil {
			return nil, err
		}
		if _, err := client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: &table, Key: key}); err != nil {
			return nil, err
		}
		if _, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: key}); err != nil {
			return nil, err
		}
		_, err := client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{})
		return json.RawMessage(`{}`), err
	})
}
