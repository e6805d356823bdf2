// Package sweeping is the part that all sweeper functions have in common. What differs is
// the operations that they know.
package sweeping

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/outbox/sqssender"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// Main runs a sweeper function with the environment variables that README.md of
// lambda/functions/sweeper lists. It does not return. operations
// says what the sweep knows of the operations in the store.
func Main(operations func(idem.Store) ([]reconcile.Operation, error)) {
	slog.SetDefault(lambdacontext.NewLogger())
	metrics, err := emf.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	f, err := open(context.Background(), operations, metrics)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(metrics.Wrap(lambda.NewHandler(f.handle)))
}

func open(ctx context.Context, operations func(idem.Store) ([]reconcile.Operation, error), metrics *emf.Metrics) (*function, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint)})
	if err != nil {
		return nil, err
	}
	kind := &dynamostore.Options{WithoutTransactions: os.Getenv(schema.EnvWithoutTransactions) == "true"}
	store, err := dynamostore.NewQuestions(client, os.Getenv(schema.EnvTable), kind)
	if err != nil {
		return nil, err
	}
	reconciler, err := reconcile.New(store, nil)
	if err != nil {
		return nil, err
	}
	known, err := operations(store)
	if err != nil {
		return nil, err
	}
	people, err := sqssender.New(sqs.NewFromConfig(cfg), os.Getenv(schema.EnvSweepPeople))
	if err != nil {
		return nil, err
	}
	o := &reconcile.SweepOptions{Operations: known, People: reconcile.SendTo(people), Who: lambdacontext.FunctionName, Observer: metrics.Observe}
	if text := os.Getenv(schema.EnvSweepSegments); text != "" {
		if o.ExpireSegments, err = strconv.Atoi(text); err != nil || o.ExpireSegments < 1 {
			return nil, fmt.Errorf("%s is %q: use a whole number from 1", schema.EnvSweepSegments, text)
		}
		if o.Expired, err = dynamostore.NewRemover(client, os.Getenv(schema.EnvTable), kind); err != nil {
			return nil, err
		}
	}
	sweeper, err := reconcile.NewSweeper(reconciler, o)
	return &function{reconciler, sweeper, metrics}, err
}
