// Package deployed starts the example functions: each has an engine over the table that its
// environment names, the log of Lambda and the metrics of package emf.
//
// Environment: IDEM_TABLE names the table, IDEM_DYNAMODB_ENDPOINT is a local DynamoDB (unset on
// AWS), and IDEM_WITHOUT_TRANSACTIONS is true for a table that has no transactions.
package deployed

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
)

// Start starts the function with its handler. An error ends the process.
func Start(handler func(*idem.Engine) (any, error)) {
	slog.SetDefault(lambdacontext.NewLogger())
	metrics, err := emf.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	engine, err := open(context.Background(), idem.Observers(idem.LogTo(nil), metrics.Observe))
	if err != nil {
		log.Fatal(err)
	}
	h, err := handler(engine)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(metrics.Wrap(lambda.NewHandler(h)))
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
