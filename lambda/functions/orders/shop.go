package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
)

// shop is the business: it knows nothing of idempotency but the token that it
// writes beside the order.
type shop struct {
	client putter
	table  string
}

type putter interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// order is the body of a message.
type order struct {
	ID    string `json:"orderId"`
	Items []item `json:"items"`
}

type item struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// fulfil writes the order, unless it is there.
func (s *shop) fulfil(ctx context.Context, o order) error {
	if err := o.check(); err != nil {
		// No delivery can correct it: recorded, and the message is deleted.
		return idem.Permanent(err)
	}
	items, err := json.Marshal(o.Items)
	if err != nil {
		return err
	}
	by, _ := idem.InfoOf(ctx)
	_, err = s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.table,
		Item: map[string]types.AttributeValue{
			"customer": text(by.Tenant), "order_id": text(o.ID), "items": text(string(items)), "token": text(by.Token),
		},
		// An attempt that nobody heard of again may have written it: under the same token.
		ConditionExpression:       new("attribute_not_exists(order_id) OR #token = :token"),
		ExpressionAttributeNames:  map[string]string{"#token": "token"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":token": text(by.Token)},
	})
	var taken *types.ConditionalCheckFailedException
	if errors.As(err, &taken) {
		return idem.Permanent(fmt.Errorf("order %s came before, under another idempotency key", o.ID))
	}
	return err // repeatable: the next delivery tries again
}

func (o order) check() error {
	if o.ID == "" || len(o.Items) == 0 {
		return errors.New("an order needs an orderId and at least one item")
	}
	for _, i := range o.Items {
		if i.SKU == "" || i.Quantity < 1 {
			return errors.New("an item needs a sku and a quantity above zero")
		}
	}
	return nil
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
