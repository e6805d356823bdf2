package readme

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// The snippets of package idem's README that need a table.

type Transfer struct {
	ID       string
	From, To string
	Cents    int64
}

var accounts string

var Move = idem.Operation{Name: "move", Repeat: idem.Repeatable, Mode: idem.Atomic}

func account(name string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: name}, "sk": &types.AttributeValueMemberS{Value: "#"},
	}
}

func amount(n int64) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}}
}

func transfer(ctx context.Context, tx *dynamostore.Tx, in Transfer) (Receipt, error) {
	tx.Update(types.Update{
		TableName: &accounts, Key: account(in.From),
		UpdateExpression:          aws.String("SET balance = balance - :n"),
		ConditionExpression:       aws.String("balance >= :n"),
		ExpressionAttributeValues: amount(in.Cents),
	}, dynamostore.OnConditionFailed(idem.Permanent(errors.New("insufficient funds"))))
	tx.Update(types.Update{
		TableName: &accounts, Key: account(in.To),
		UpdateExpression:          aws.String("ADD balance :n"),
		ExpressionAttributeValues: amount(in.Cents),
	}, nil)
	tx.Publish("moved", outbox.Message{Destination: "transfers", Type: "moved", Body: []byte(in.ID)})
	return Receipt{Number: in.ID}, nil
}

func TestTransfer(t *testing.T) {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	accounts = rig.Table(t)
	rich := account("ada")
	rich["balance"] = &types.AttributeValueMemberN{Value: "100"}
	_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &accounts, Item: rich})
	require.NoError(t, err)
	// How fast the table answers is not what is tested.
	engine, err := idem.New(rig.Store(t, client, accounts), &idem.Options{ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute})
	require.NoError(t, err)

	do := func(ctx context.Context, tenant string, in Transfer) (Receipt, error) {
		receipt, err := idem.Do(ctx, engine, Move.Key(tenant, in.ID), in, dynamostore.Transact(transfer))
		return receipt, err
	}
	for range 2 {
		receipt, err := do(t.Context(), "acme", Transfer{"t-1", "ada", "bob", 60})
		require.NoError(t, err)
		require.Equal(t, "t-1", receipt.Number)
		_, err = do(t.Context(), "acme", Transfer{"t-2", "ada", "bob", 60})
		require.EqualError(t, err, "insufficient funds")
	}
	for name, want := range map[string]string{"ada": "40", "bob": "60"} {
		out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &accounts, Key: account(name), ConsistentRead: aws.Bool(true)})
		require.NoError(t, err)
		require.Equal(t, &types.AttributeValueMemberN{Value: want}, out.Item["balance"])
	}
}
