package main

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/dynamodblocal/dynamotest"
)

const good = `{"orderId": "o-1", "items": [{"sku": "book", "quantity": 2}]}`

// counted writes to DynamoDB, counts it, and loses the reply of the first
// writes if it is told to.
type counted struct {
	*dynamodb.Client
	writes, lost int
}

var errLost = errors.New("the reply was lost")

func (c *counted) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	c.writes++
	out, err := c.Client.PutItem(ctx, in, o...)
	if c.writes <= c.lost {
		return nil, errLost
	}
	return out, err
}

// function is the deployed handler over an in-memory store of records and a
// fresh table of orders. What it returns delivers one message and reports why it
// was acknowledged or goes back.
func function(t *testing.T) (deliver func(tenant, key, body string) (idemlambda.Reason, error), db *counted, table string) {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	table = "orders-" + rand.Text()
	_, err = client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: new("customer"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: new("order_id"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: new("customer"), KeyType: types.KeyTypeHash}, {AttributeName: new("order_id"), KeyType: types.KeyTypeRange},
		},
	})
	require.NoError(t, err)
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	db = &counted{Client: client}
	var last idemlambda.SQSOutcome
	o := &idemlambda.SQSOptions{Outcome: func(_ context.Context, o idemlambda.SQSOutcome) { last = o }}
	h := idemlambda.SQS(engine, fulfil, byAttribute, o, (&shop{db, table}).fulfil)
	return func(tenant, key, body string) (idemlambda.Reason, error) {
		sending, err := idemlambda.SQSSendingOf(fulfil, tenant, key)
		require.NoError(t, err)
		m := events.SQSMessage{MessageId: rand.Text(), Body: body, MessageAttributes: map[string]events.SQSMessageAttribute{}}
		for name, value := range sending.Attributes {
			m.MessageAttributes[name] = events.SQSMessageAttribute{DataType: "String", StringValue: &value}
		}
		res, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{m}})
		require.NoError(t, err)
		require.Equal(t, last.Reason.Acknowledges(), len(res.BatchItemFailures) == 0)
		return last.Reason, last.Err
	}, db, table
}

func rows(t *testing.T, db *counted, table string) []map[string]types.AttributeValue {
	out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: new(true)})
	require.NoError(t, err)
	return out.Items
}

func TestOrderIsWrittenOnce(t *testing.T) {
	deliver, db, table := function(t)
	for i, want := range []idemlambda.Reason{idemlambda.ReasonExecuted, idemlambda.ReasonReplayed} {
		got, err := deliver("acme", "order-0001", good)
		require.NoError(t, err)
		require.Equal(t, want, got, "delivery %d", i+1)
	}
	require.Equal(t, 1, db.writes)
	all := rows(t, db, table)
	require.Len(t, all, 1)
	require.Equal(t, text("acme"), all[0]["customer"])
	require.Equal(t, text("o-1"), all[0]["order_id"])
	require.Equal(t, text(`[{"sku":"book","quantity":2}]`), all[0]["items"])
}

func TestTenantsShareNoOrder(t *testing.T) {
	deliver, db, table := function(t)
	for _, tenant := range []string{"acme", "globex"} {
		got, err := deliver(tenant, "order-0001", good)
		require.NoError(t, err)
		require.Equal(t, idemlambda.ReasonExecuted, got)
	}
	require.Len(t, rows(t, db, table), 2)
}

// The order was written, and nobody heard of it: the next delivery writes it
// again, under the same token, and succeeds.
func TestWriteWhoseReplyIsLost(t *testing.T) {
	deliver, db, table := function(t)
	db.lost = 1
	got, err := deliver("acme", "order-0001", good)
	require.ErrorIs(t, err, errLost)
	require.Equal(t, idemlambda.ReasonReleased, got)
	got, err = deliver("acme", "order-0001", good)
	require.NoError(t, err)
	require.Equal(t, idemlambda.ReasonExecuted, got)
	require.Equal(t, 2, db.writes)
	require.Len(t, rows(t, db, table), 1)
}

func TestWhatNoDeliveryCanCorrectIsRecorded(t *testing.T) {
	for name, body := range map[string]string{
		"no items":    `{"orderId": "o-1", "items": []}`,
		"no id":       `{"items": [{"sku": "book", "quantity": 2}]}`,
		"no quantity": `{"orderId": "o-1", "items": [{"sku": "book"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			deliver, db, _ := function(t)
			for range 2 {
				got, err := deliver("acme", "order-0001", body)
				require.Error(t, err)
				require.Equal(t, idemlambda.ReasonFailed, got)
			}
			require.Zero(t, db.writes)
		})
	}
	t.Run("the order came before", func(t *testing.T) {
		deliver, db, table := function(t)
		_, err := deliver("acme", "order-0001", good)
		require.NoError(t, err)
		got, err := deliver("acme", "order-0002", good)
		require.ErrorContains(t, err, "order o-1 came before")
		require.Equal(t, idemlambda.ReasonFailed, got)
		require.Len(t, rows(t, db, table), 1)
	})
}
