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

// start starts the function with its handler, an engine over the table that the environment names,
// the log of Lambda and the metrics of package emf.
func start(handler func(*idem.Engine) (any, error)) {
	slog.SetDefault(lambdacontext.NewLogger())
	metrics := must(emf.New(nil))
	cfg := must(config.LoadDefaultConfig(context.Background()))
	client := must(dynamostore.NewClient(cfg,
		&dynamostore.ClientOptions{Endpoint: os.Getenv("IDEM_DYNAMODB_ENDPOINT")}))
	store := must(dynamostore.New(client, os.Getenv("IDEM_TABLE"), nil))
	observer := idem.Observers(idem.LogTo(nil), metrics.Observe)
	engine := must(idem.New(store, &idem.Options{Observer: observer}))
	lambda.Start(metrics.Wrap(lambda.NewHandler(must(handler(engine)))))
}

// must returns the value. An error ends the process.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
