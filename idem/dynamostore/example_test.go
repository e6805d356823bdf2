package dynamostore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
)

// A test that needs a table runs under the command local/cmd/with-dynamodb, which leads
// the AWS SDK to DynamoDB Local.
func ExampleCreateTable() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		panic(err)
	}
	client, err := dynamostore.NewClient(cfg, nil)
	if err != nil {
		panic(err)
	}
	if err := dynamostore.CreateTable(ctx, client, "example-records"); err != nil {
		panic(err)
	}
	// A machine that runs tests may be slow: in Lambda the defaults are right.
	store, err := dynamostore.New(client, "example-records", &dynamostore.Options{AttemptTimeout: time.Minute})
	if err != nil {
		panic(err)
	}
	engine, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute})
	if err != nil {
		panic(err)
	}
	charge := idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	for range 2 {
		got, err := idem.Run(ctx, engine, charge.Key("acme", "payment-1"), 1999,
			func(_ context.Context, cents int) (string, error) {
				return fmt.Sprint(cents, " cents charged"), nil
			})
		fmt.Println(got.Value, got.Outcome.Replayed, err)
	}
}

func TestExampleOfATableRuns(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": dynamotest.Endpoint(t), "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "idemlocal",
		"AWS_SECRET_ACCESS_KEY": "idemlocal",
	} {
		t.Setenv(name, value)
	}
	require.NotPanics(t, ExampleCreateTable)
}
