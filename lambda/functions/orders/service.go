package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox"
)

// service is the business. It writes nothing itself: its transaction is written
// together with the operation's outcome, or not at all.
type service struct{ table string }

// order is the body of a message.
type order struct {
	ID    string `json:"orderId"`
	Items []item `json:"items"`
}

type item struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// accepted is the message that others wait for.
type accepted struct {
	Customer string `json:"customer"`
	OrderID  string `json:"orderId"`
}

// fulfil writes the order unless it exists, and publishes that it was accepted.
func (s *service) fulfil(ctx context.Context, o order) error {
	if err := o.check(); err != nil {
		// No delivery can correct it: the failure is recorded, and the message is deleted.
		return idem.Permanent(err)
	}
	by, _ := idem.InfoOf(ctx)
	items, err := json.Marshal(o.Items)
	if err != nil {
		return err
	}
	news, err := json.Marshal(accepted{by.Tenant, o.ID})
	if err != nil {
		return err
	}
	tx := dynamostore.TxOf(ctx)
	tx.Put(types.Put{
		TableName: &s.table,
		Item: map[string]types.AttributeValue{
			"customer": text(by.Tenant), "order_id": text(o.ID), "items": text(string(items)), "token": text(by.Token),
		},
		// A repeat after the record's expiry has the same token.
		ConditionExpression:       aws.String("attribute_not_exists(order_id) OR #token = :token"),
		ExpressionAttributeNames:  map[string]string{"#token": "token"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":token": text(by.Token)},
	}, dynamostore.OnConditionFailed(
		idem.Permanent(fmt.Errorf("order %s came before, under another idempotency key", o.ID))))
	tx.Publish("accepted", outbox.Message{
		Destination: "order-events", Type: "order.accepted", ContentType: "application/json", Body: news,
	})
	return nil
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
