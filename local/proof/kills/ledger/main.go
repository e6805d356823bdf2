// Command ledger is the function that the tests of package kills run: it books
// credits, which are repeatable since each is written under its token, and
// debits, which are not.
//
// Environment: IDEM_TABLE names the table of records, LEDGER_TABLE the one of
// bookings, IDEM_DYNAMODB_ENDPOINT the local DynamoDB. A booking whose id is the
// name of a file in the folder LEDGER_HANG hangs after it is written, without
// regard to its context.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
)

type booking struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // credit or debit
}

type receipt struct {
	ID      string `json:"id"`
	Booking string `json:"booking"`
}

func main() {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{
		Endpoint: os.Getenv(schema.EnvEndpoint), Transport: caller.Transport{RoundTripper: http.DefaultTransport.(*http.Transport).Clone()},
	})
	if err != nil {
		log.Fatal(err)
	}
	store, err := dynamostore.New(client, os.Getenv(schema.EnvTable), nil)
	if err != nil {
		log.Fatal(err)
	}
	// Where a process takes several invocations, a time-out kills nothing and the lease
	// goes by itself: as short as the tests' time-out.
	engine, err := idem.New(store, &idem.Options{
		Lease: 2 * time.Second, Margin: 250 * time.Millisecond, Observer: idem.LogTo(nil),
	})
	if err != nil {
		log.Fatal(err)
	}
	books := &ledger{client: client, table: os.Getenv("LEDGER_TABLE"), hang: os.Getenv("LEDGER_HANG")}
	byID := idemlambda.Pointer(idem.NoTenant, "/id")
	credit := idemlambda.Wrap(engine, idem.Operation{Name: "credit", Repeat: idem.Repeatable}, byID, books.credit)
	debit := idemlambda.Wrap(engine, idem.Operation{Name: "debit", Repeat: idem.NotRepeatable}, byID, books.debit)
	lambda.Start(idemlambda.Handler(func(ctx context.Context, event []byte) ([]byte, error) {
		var b booking
		if err := json.Unmarshal(event, &b); err != nil {
			return nil, err
		}
		if b.Kind == "debit" {
			return debit(ctx, event)
		}
		return credit(ctx, event)
	}))
}

type ledger struct {
	client      *dynamodb.Client
	table, hang string
}

// credit books once per token: a second attempt finds the booking of the first.
func (l *ledger) credit(ctx context.Context, b booking) (receipt, error) {
	id := rand.Text()
	_, err := l.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &l.table, Item: item(b, idem.Token(ctx), id),
		ConditionExpression:                 aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var there *types.ConditionalCheckFailedException
	if errors.As(err, &there) {
		old, ok := there.Item["booking"].(*types.AttributeValueMemberS)
		if !ok {
			return receipt{}, errors.New("the booking that is there has no number")
		}
		id, err = old.Value, nil
	}
	return l.done(b, id, err)
}

// debit books whenever it runs.
func (l *ledger) debit(ctx context.Context, b booking) (receipt, error) {
	id := rand.Text()
	_, err := l.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &l.table, Item: item(b, id, id)})
	return l.done(b, id, err)
}

func (l *ledger) done(b booking, id string, err error) (receipt, error) {
	if err != nil {
		return receipt{}, err
	}
	if _, err := os.Stat(filepath.Join(l.hang, b.ID)); err == nil {
		select {}
	}
	return receipt{ID: b.ID, Booking: id}, nil
}

func item(b booking, sort, id string) map[string]types.AttributeValue {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	return map[string]types.AttributeValue{"pk": text(b.Kind + "#" + b.ID), "sk": text(sort), "booking": text(id)}
}
