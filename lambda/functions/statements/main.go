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
)

func main() {
	start(func(engine *idem.Engine) (any, error) {
		statements := &service{provider{os.Getenv("PROVIDER_URL")}}
		return idemlambda.SQSWorker(engine, operation, nil, statements.make), nil
	})
}
