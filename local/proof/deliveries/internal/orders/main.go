// Command orders is the function that the tests of package deliveries run. It does with
// each message what the test says.
//
// Environment: IDEM_TABLE names the table of records, IDEM_DYNAMODB_ENDPOINT the local
// DynamoDB, ORDERS_RECORDER the test, ORDERS_SOURCE the event source: sqs, sns, eventbridge
// or async. ORDERS_REPEATABLE=1 declares the operation repeatable, its effect being under its token.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
	"github.com/idem-go/idempotency/local/proof/rig/runs"
)

func main() {
	handler, err := open()
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(handler)
}

func open() (any, error) {
	engine, _, err := caller.Patient()
	if err != nil {
		return nil, err
	}
	s := &service{recorder: os.Getenv("ORDERS_RECORDER")}
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

type service struct {
	recorder   string
	repeatable bool
}

// order is the body of a message.
type order struct {
	N int `json:"n"`
}

// fulfil does what the test says.
func (s *service) fulfil(ctx context.Context, o order) error {
	info, ok := idem.InfoOf(ctx)
	if !ok {
		return errors.New("not inside an operation")
	}
	run, err := runs.Begin(s.recorder, o.N, info.Attempt, nil)
	if err != nil {
		return err
	}
	return run.Act(func() error {
		if s.repeatable {
			return run.Effect(idem.Token(ctx), time.Time{})
		}
		return run.Effect("", time.Time{})
	})
}
