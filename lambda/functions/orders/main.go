// Command orders is the example behind a queue. Every message is an order, which is
// written to the business's own table once, however often it is sent or delivered. The
// order's row, the message order.accepted for others and the operation's outcome commit
// in one transaction. The function lambda/functions/relay sends the message to the
// destination order-events.
//
// A message has its key in the attributes idempotency-tenant and idempotency-key, as
// idemlambda.SQSAttributesFor names them; the tenant is the customer. Its body is JSON, see
// order.
//
// Environment: IDEM_TABLE names the table of records, ORDERS_TABLE the one of
// orders (keys: customer and order_id, both strings), IDEM_DYNAMODB_ENDPOINT a
// local DynamoDB (unset on AWS). The event source mapping must have
// ReportBatchItemFailures.
package main

import (
	"errors"
	"os"

	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

var (
	// Everything commits with the outcome or not at all: running again is safe.
	fulfil = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable}

	byAttribute = idemlambda.SQSAttribute(idemlambda.SQSTenantAttribute, idemlambda.SQSKeyAttribute)
)

func main() {
	start(func(engine *idem.Engine) (any, error) {
		orders := &service{os.Getenv("ORDERS_TABLE")}
		if orders.table == "" {
			return nil, errors.New("ORDERS_TABLE names no table")
		}
		return idemlambda.SQS(engine, fulfil, byAttribute, nil, orders.fulfil), nil
	})
}
