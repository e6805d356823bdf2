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
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
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
	engine, client, err := caller.Patient()
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

type service struct {
	client          *dynamodb.Client
	table, recorder string
	repeatable      bool
}

// order is the body of a message.
type order struct {
	N     int    `json:"n"`
	Group string `json:"group"`
}

// fulfil does what the test says, and tells it how that ended.
func (s *service) fulfil(ctx context.Context, o order) error {
	info, ok := idem.InfoOf(ctx)
	if !ok {
		return errors.New("not inside an operation")
	}
	run, err := runs.Begin(s.recorder, o.N, info.Attempt, nil)
	if err != nil {
		return err
	}
	end, err := s.act(ctx, o, run.Fate)
	if failed := run.End(end); failed != nil {
		return failed
	}
	if end == "panic" {
		panic("a panic")
	}
	return err
}

// act returns how the handler ends, and its error.
func (s *service) act(ctx context.Context, o order, fate string) (end string, err error) {
	switch fate {
	case "not executed":
		return fate, idem.NotExecuted(errors.New("the warehouse is closed"))
	case "permanent":
		return fate, idem.Permanent(errors.New("no such article"))
	case "error before":
		return "error", errors.New("the warehouse does not answer")
	case "panic before":
		return "panic", nil
	case "hang":
		select {}
	}
	if err := s.effect(ctx, o); err != nil {
		return "error", err
	}
	switch fate {
	case "error after":
		return "error", errors.New("the reply was lost")
	case "panic after":
		return "panic", nil
	}
	return "ok", nil
}

// effect is one conditional write: under the token if the operation is repeatable,
// else whenever it runs.
func (s *service) effect(ctx context.Context, o order) error {
	id := rand.Text()
	if s.repeatable {
		id = idem.Token(ctx)
	}
	text := func(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
	condition := "attribute_not_exists(pk)"
	_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.table, ConditionExpression: &condition,
		Item: map[string]types.AttributeValue{"pk": text(o.Group), "sk": text(fmt.Sprintf("%d#%s", o.N, id))},
	})
	if _, there := errors.AsType[*types.ConditionalCheckFailedException](err); there {
		return nil // an earlier attempt's
	}
	return err
}
