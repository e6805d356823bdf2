// Command payments is the example behind an HTTP API (payload 2.0) or a REST API
// (payload 1.0): it charges and refunds, each under one idempotency key per request. It accepts
// statements for later: lambda/functions/statements makes them.
//
// Environment: IDEM_TABLE names the table, PROVIDER_URL the payment provider,
// IDEM_DYNAMODB_ENDPOINT a local DynamoDB (unset on AWS). PAYMENTS_API is the API's
// flavour: http, which is the default, or rest. PAYMENTS_TENANT is where the tenant is:
// jwt:<claim> (the default is jwt:sub), lambda:<member of the authorizer's context>, iam,
// or none.
package main

import (
	"context"
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
	"github.com/idem-go/idempotency/lambda/functions/internal/provider"
	"github.com/idem-go/idempotency/lambda/functions/internal/statement"
)

var operations = map[string]idem.Operation{
	// The provider takes the token as its own idempotency key: charging again is safe.
	"POST /payments": {Name: "charge", Repeat: idem.Repeatable},
	// The provider's refunds take no key: after an uncertain attempt nobody may try again
	// until lambda/functions/refundsweeper has found out what became of it.
	"POST /refunds": {Name: "refund", Repeat: idem.NotRepeatable},
	statement.Route: statement.Operation,
}

func main() {
	slog.SetDefault(lambdacontext.NewLogger())
	metrics, err := emf.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	engine, err := open(context.Background(), idem.Observers(idem.LogTo(nil), metrics.Observe))
	if err != nil {
		log.Fatal(err)
	}
	payments := &service{provider: provider.Client{URL: os.Getenv("PROVIDER_URL")}}
	handler, err := payments.behind(engine, os.Getenv("PAYMENTS_API"), os.Getenv("PAYMENTS_TENANT"))
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(metrics.Wrap(lambda.NewHandler(handler)))
}

func open(ctx context.Context, observer idem.Observer) (*idem.Engine, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint)})
	if err != nil {
		return nil, err
	}
	kind := &dynamostore.Options{WithoutTransactions: os.Getenv(schema.EnvWithoutTransactions) == "true"}
	store, err := dynamostore.New(client, os.Getenv(schema.EnvTable), kind)
	if err != nil {
		return nil, err
	}
	return idem.New(store, &idem.Options{Observer: observer})
}
