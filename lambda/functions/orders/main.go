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
	"context"
	"errors"
	"log"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/schema"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

var (
	// Everything commits with the outcome or not at all: running again is safe.
	fulfil = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable}

	byAttribute = idemlambda.SQSAttribute(idemlambda.SQSTenantAttribute, idemlambda.SQSKeyAttribute)
)

func main() {
	slog.SetDefault(lambdacontext.NewLogger())
	metrics, err := emf.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	engine, orders, err := open(context.Background(), idem.Observers(idem.LogTo(nil), metrics.Observe))
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(metrics.Wrap(lambda.NewHandler(idemlambda.SQS(engine, fulfil, byAttribute, nil, orders.fulfil))))
}

func open(ctx context.Context, observer idem.Observer) (*idem.Engine, *service, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint)})
	if err != nil {
		return nil, nil, err
	}
	store, err := dynamostore.New(client, os.Getenv(schema.EnvTable), nil)
	if err != nil {
		return nil, nil, err
	}
	orders := &service{os.Getenv("ORDERS_TABLE")}
	if orders.table == "" {
		return nil, nil, errors.New("ORDERS_TABLE names no table")
	}
	engine, err := idem.New(store, &idem.Options{Observer: observer})
	return engine, orders, err
}
