// Command orders is the function that the tests of package deliveries run. Before its
// effect it asks the test what to do, and tells it how it has ended.
//
// Environment: IDEM_TABLE names the table of records, ORDERS_TABLE the one of effects,
// IDEM_DYNAMODB_ENDPOINT the local DynamoDB, ORDERS_RECORDER the test, ORDERS_SOURCE the
// event source: sqs, sns, eventbridge or async. ORDERS_REPEATABLE=1 declares the
// operation repeatable, its effect being written under its token.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
)

func main() {
	handler, err := open()
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(handler)
}

func open() (any, error) {
	engine, client, err := caller.Engine(caller.Patient(), 10*time.Second)
	if err != nil {
		return nil, err
	}
	s := &service{client: client, table: os.Getenv("ORDERS_TABLE"), recorder: os.Getenv("ORDERS_RECORDER")}
	op := idem.Operation{Name: "fulfil", Repeat: idem.NotRepeatable}
	if os.Getenv("ORDERS_REPEATABLE") == "1" {
		op.Repeat, s.repeatable = idem.Repeatable, true
	}
	switch source := os.Getenv("ORDERS_SOURCE"); source {
	case "sqs":
		// DynamoDB Local serves some callers at once well; with ten for every instance of
		// several functions most claims would come too late.
		o := &idemlambda.SQSOptions{Concurrency: 4}
		key := idemlambda.SQSAttribute(idem.SingleTenant, idemlambda.SQSKeyAttribute)
		return idemlambda.SQS(engine, op, key, o, s.fulfil), nil
	case "sns":
		return idemlambda.SNS(engine, op, nil, nil, s.fulfil), nil
	case "eventbridge":
		return idemlambda.EventBridge(engine, op, nil, nil, s.fulfil), nil
	case "async":
		return idemlambda.Async(engine, op, nil, func(ctx context.Context, o order) (string, error) {
			return idem.Token(ctx), s.fulfil(ctx, o)
		}), nil
	default:
		return nil, fmt.Errorf("ORDERS_SOURCE is %q", source)
	}
}
