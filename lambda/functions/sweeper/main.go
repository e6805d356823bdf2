// Command sweeper looks for claims whose process died and for open questions that are due.
// It asks nobody: claims of not repeatable operations become unknown, and people get what
// nobody has resolved. A service whose provider can tell what became of a request has a
// sweeper of its own, as lambda/functions/refundsweeper shows. README.md has how to deploy
// and operate it.
//
// Environment: IDEM_TABLE names the table, IDEM_SWEEP_PEOPLE is the URL of the queue for
// questions that are left to people. IDEM_SWEEP_SEGMENTS, on a table without TTL, lets it
// remove what has expired. IDEM_DYNAMODB_ENDPOINT is a local DynamoDB (unset on AWS).
package main

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

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox/sqssender"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

func main() {
	slog.SetDefault(lambdacontext.NewLogger())
	sweeper, err := open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start((&function{sweeper}).handle)
}

func open(ctx context.Context) (*reconcile.Sweeper, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint)})
	if err != nil {
		return nil, err
	}
	store, err := dynamostore.NewQuestions(client, os.Getenv(schema.EnvTable), nil)
	if err != nil {
		return nil, err
	}
	reconciler, err := reconcile.New(store, nil)
	if err != nil {
		return nil, err
	}
	people, err := sqssender.New(sqs.NewFromConfig(cfg), os.Getenv(schema.EnvSweepPeople))
	if err != nil {
		return nil, err
	}
	o := &reconcile.SweepOptions{People: reconcile.SendTo(people), Who: lambdacontext.FunctionName}
	if text := os.Getenv(schema.EnvSweepSegments); text != "" {
		if o.ExpireSegments, err = strconv.Atoi(text); err != nil || o.ExpireSegments < 1 {
			return nil, fmt.Errorf("%s is %q: use a whole number from 1", schema.EnvSweepSegments, text)
		}
		if o.Expired, err = dynamostore.NewRemover(client, os.Getenv(schema.EnvTable), nil); err != nil {
			return nil, err
		}
	}
	return reconcile.NewSweeper(reconciler, o)
}
