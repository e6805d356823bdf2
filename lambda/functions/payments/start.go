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
)

// start starts the function with its handler, the log of Lambda and the metrics of package emf.
// An error ends the process.
func start(handler func(*idem.Engine) (any, error)) {
	slog.SetDefault(lambdacontext.NewLogger())
	metrics, err := emf.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	engine, err := newEngine(context.Background(), idem.Observers(idem.LogTo(nil), metrics.Observe))
	if err != nil {
		log.Fatal(err)
	}
	h, err := handler(engine)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(metrics.Wrap(lambda.NewHandler(h)))
}

// newEngine returns an engine over the table that the environment names.
func newEngine(ctx context.Context, observer idem.Observer) (*idem.Engine, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: os.Getenv("IDEM_DYNAMODB_ENDPOINT")})
	if err != nil {
		return nil, err
	}
	store, err := dynamostore.New(client, os.Getenv("IDEM_TABLE"), nil)
	if err != nil {
		return nil, err
	}
	return idem.New(store, &idem.Options{Observer: observer})
}
