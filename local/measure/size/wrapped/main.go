// Command wrapped is the Lambda handler of command bare, wrapped by idem.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

type payment struct{ ID string }

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		panic(err)
	}
	client, err := dynamostore.NewClient(cfg, nil)
	if err != nil {
		panic(err)
	}
	store, err := dynamostore.New(client, os.Getenv("IDEM_TABLE"), nil)
	if err != nil {
		panic(err)
	}
	engine, err := idem.New(store, nil)
	if err != nil {
		panic(err)
	}
	charge := idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	lambda.Start(idemlambda.Wrap(engine, charge, idemlambda.Pointer(idem.SingleTenant, "/ID"),
		func(context.Context, payment) (json.RawMessage, error) {
			return json.RawMessage(`{}`), nil
		}))
}
