// Command statements is the worker of the payments example: it makes the statements that the
// payments function has accepted. The queue brings it the ids of their records.
//
// Environment: IDEM_TABLE names the table of the payments function, PROVIDER_URL the payment
// provider, IDEM_DYNAMODB_ENDPOINT a local DynamoDB (unset on AWS). The event source mapping
// must have ReportBatchItemFailures.
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
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/lambda/functions/internal/provider"
	"github.com/idem-go/idempotency/lambda/functions/internal/statement"
)

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
	maker := statement.Maker{Provider: provider.Client{URL: os.Getenv("PROVIDER_URL")}}
	lambda.Start(metrics.Wrap(lambda.NewHandler(idemlambda.SQSWorker(engine, statement.Operation, nil, maker.Make))))
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
	store, err := dynamostore.New(client, os.Getenv(schema.EnvTable), nil)
	if err != nil {
		return nil, err
	}
	return idem.New(store, &idem.Options{Observer: observer})
}
