package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// faked is a store over a client that hands every input to one function.
func faked(client fake) *Store { return must(New(client, "table", nil)) }

// fake is a client that hands every input to one function.
type fake func(ctx context.Context, in any) (item, error)

func (f fake) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	_, err := f(ctx, in)
	return &dynamodb.PutItemOutput{}, err
}

func (f fake) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	_, err := f(ctx, in)
	return &dynamodb.UpdateItemOutput{}, err
}

func (f fake) GetItem(ctx context.Context, in *dynamodb.GetItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	it, err := f(ctx, in)
	return &dynamodb.GetItemOutput{Item: it}, err
}

func (f fake) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	_, err := f(ctx, in)
	return &dynamodb.BatchGetItemOutput{}, err
}

func (f fake) Query(ctx context.Context, in *dynamodb.QueryInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	_, err := f(ctx, in)
	return &dynamodb.QueryOutput{}, err
}

func (f fake) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	_, err := f(ctx, in)
	return &dynamodb.DeleteItemOutput{}, err
}

func (f fake) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	_, err := f(ctx, in)
	return &dynamodb.TransactWriteItemsOutput{}, err
}
