package idemtest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/outbox"
)

// order stores a new order, and publishes it.
func order(_ context.Context, tx *dynamostore.Tx, p Payment) (Receipt, error) {
	tx.Put(types.Put{
		TableName:           aws.String("orders"),
		Item:                map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: p.ID}},
		ConditionExpression: aws.String("attribute_not_exists(id)"),
	}, dynamostore.OnConditionFailed(idem.Permanent(errors.New("there is such an order"))))
	tx.Publish("ordered", outbox.Message{Destination: "orders", Type: "ordered", Body: []byte(p.ID)})
	return Receipt{Number: 1, Cents: p.Cents}, nil
}

// A unit of work commits once. The test says how its condition comes out.
func ExampleHarness_Published() {
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
	for _, holds := range []bool{true, false} {
		h := idemtest.New(nil, nil)
		h.Store.Conditions(func(action any) (bool, any) {
			fmt.Println("asked about:", *action.(types.TransactWriteItem).Put.ConditionExpression)
			return holds, nil
		})
		got := idemtest.Deliver(h, 2, func(ctx context.Context, e *idem.Engine) (Receipt, error) {
			return idem.Do(ctx, e, op.Key("acme", "order-1"), Payment{ID: "order-1", Cents: 4200}, dynamostore.Transact(order))
		})
		fmt.Println(got[1].Value, got[1].Err, "replayed:", got[1].Replayed)
		for _, m := range h.Published() {
			fmt.Println("published:", m.Type, string(m.Body))
		}
	}
	// Output:
	// asked about: attribute_not_exists(id)
	// {1 4200} <nil> replayed: true
	// published: ordered order-1
	// asked about: attribute_not_exists(id)
	// {0 0} there is such an order replayed: true
}

// A handler is called directly.
func ExampleContext() {
	op := idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	charge := func(ctx context.Context, p Payment) (string, error) {
		return fmt.Sprintf("%d for token %s", p.Cents, idem.Token(ctx)), nil
	}
	ctx := idemtest.Context(nil, op.Key("acme", "payment-1")) // in a test: idemtest.Context(t, …)
	fmt.Println(charge(ctx, Payment{ID: "payment-1", Cents: 4200}))
	// Output:
	// 4200 for token 2f60ee02-7767-8cc8-9837-9621bb9230ab <nil>
}
