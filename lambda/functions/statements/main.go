// Command statements is the worker of the payments example: it makes the statements that the
// payments function has accepted. The queue brings it the ids of their records.
//
// Environment: IDEM_TABLE names the table of the payments function, PROVIDER_URL the payment
// provider, IDEM_DYNAMODB_ENDPOINT a local DynamoDB (unset on AWS). The event source mapping
// must have ReportBatchItemFailures.
package main

import (
	"os"

	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/lambda/functions/internal/deployed"
	"github.com/idem-go/idempotency/lambda/functions/internal/provider"
	"github.com/idem-go/idempotency/lambda/functions/internal/statement"
)

func main() {
	deployed.Start(func(engine *idem.Engine) (any, error) {
		maker := statement.Maker{Provider: provider.Client{URL: os.Getenv("PROVIDER_URL")}}
		return idemlambda.SQSWorker(engine, statement.Operation, nil, maker.Make), nil
	})
}
