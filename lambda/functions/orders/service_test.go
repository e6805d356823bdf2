package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

const good = `{"orderId": "o-1", "items": [{"sku": "book", "quantity": 2}]}`

// counted commits to DynamoDB, and counts that.
type counted struct {
	*dynamodb.Client
	commits int
}

func (c *counted) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput,
	o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	c.commits++
	return c.Client.TransactWriteItems(ctx, in, o...)
}

// tables is a deployed function's two tables.
type tables struct {
	*counted
	records, orders string
}

// function is the deployed handler over fresh tables. What it returns delivers one
// message and reports why it was acknowledged or redelivered.
func function(t *testing.T) (deliver func(tenant, key, body string) (idemlambda.Reason, error), db tables) {
	client := dynamotest.Client(t)
	db = tables{&counted{Client: client}, "idem-" + rand.Text(), "orders-" + rand.Text()}
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, db.records))
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &db.orders, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: new("customer"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: new("order_id"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: new("customer"), KeyType: types.KeyTypeHash},
			{AttributeName: new("order_id"), KeyType: types.KeyTypeRange},
		},
	})
	require.NoError(t, err)
	// How fast the table answers is not what is tested.
	store, err := dynamostore.New(db, db.records, &dynamostore.Options{AttemptTimeout: time.Minute})
	require.NoError(t, err)
	engine, err := idem.New(store, &idem.Options{ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute})
	require.NoError(t, err)
	var last idemlambda.SQSDelivery
	o := &idemlambda.SQSOptions{OnOutcome: func(_ context.Context, o idemlambda.SQSDelivery) { last = o }}
	h := idemlambda.SQS(engine, fulfil, byAttribute, o, (&service{db.orders}).fulfil)
	return func(tenant, key, body string) (idemlambda.Reason, error) {
		sending, err := idemlambda.SQSAttributesFor(fulfil, tenant, key)
		require.NoError(t, err)
		m := events.SQSMessage{MessageId: rand.Text(), Body: body, MessageAttributes: map[string]events.SQSMessageAttribute{}}
		for name, value := range sending.Attributes {
			m.MessageAttributes[name] = events.SQSMessageAttribute{DataType: "String", StringValue: &value}
		}
		res, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{m}})
		require.NoError(t, err)
		require.Equal(t, last.Reason.Acknowledges(), len(res.BatchItemFailures) == 0)
		return last.Reason, last.Err
	}, db
}

func (s tables) rows(t *testing.T, table string) []map[string]types.AttributeValue {
	out, err := s.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: new(true)})
	require.NoError(t, err)
	return out.Items
}

// messages are the bodies of what is to be sent to order-events.
func (s tables) messages(t *testing.T) (bodies []string) {
	for _, it := range s.rows(t, s.records) {
		if sk := it[schema.SK].(*types.AttributeValueMemberS).Value; strings.HasPrefix(sk, schema.OutboxSK) {
			require.Equal(t, text("order-events"), it[schema.Destination])
			require.Equal(t, text("order.accepted"), it[schema.MessageType])
			bodies = append(bodies, string(it[schema.Body].(*types.AttributeValueMemberB).Value))
		}
	}
	return bodies
}

func TestOrderIsWrittenOnce(t *testing.T) {
	deliver, db := function(t)
	for i, want := range []idemlambda.Reason{idemlambda.ReasonExecuted, idemlambda.ReasonReplayed} {
		got, err := deliver("acme", "order-0001", good)
		require.NoError(t, err)
		require.Equal(t, want, got, "delivery %d", i+1)
	}
	require.Equal(t, 1, db.commits)
	all := db.rows(t, db.orders)
	require.Len(t, all, 1)
	require.Equal(t, text("acme"), all[0]["customer"])
	require.Equal(t, text("o-1"), all[0]["order_id"])
	require.Equal(t, text(`[{"sku":"book","quantity":2}]`), all[0]["items"])
	require.Equal(t, []string{`{"customer":"acme","orderId":"o-1"}`}, db.messages(t))
}

// A repeat that comes when the record has expired writes the order again, under the same token, and tells of it once
// more: a message's id belongs to one life of the key, so a consumer must use the order's own id.
func TestRepeatAfterExpiry(t *testing.T) {
	deliver, db := function(t)
	for range 2 {
		got, err := deliver("acme", "order-0001", good)
		require.NoError(t, err)
		require.Equal(t, idemlambda.ReasonExecuted, got)
		_, err = db.DeleteItem(t.Context(),
			&dynamodb.DeleteItemInput{TableName: &db.records, Key: map[string]types.AttributeValue{
				schema.PK: text(fulfil.Key("acme", "order-0001").ID()), schema.SK: text(schema.RecordSK),
			}})
		require.NoError(t, err)
	}
	require.Equal(t, 2, db.commits)
	require.Len(t, db.rows(t, db.orders), 1)
	sent := db.messages(t)
	require.Len(t, sent, 2)
	require.Equal(t, sent[0], sent[1], "of the same order")
}

func TestWhatNoDeliveryCanCorrectIsRecorded(t *testing.T) {
	for name, body := range map[string]string{
		"no items":    `{"orderId": "o-1", "items": []}`,
		"no id":       `{"items": [{"sku": "book", "quantity": 2}]}`,
		"no quantity": `{"orderId": "o-1", "items": [{"sku": "book"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			deliver, db := function(t)
			for range 2 {
				got, err := deliver("acme", "order-0001", body)
				require.Error(t, err)
				require.Equal(t, idemlambda.ReasonFailed, got)
			}
			require.Zero(t, db.commits)
			require.Empty(t, db.messages(t))
		})
	}
	t.Run("the order came before", func(t *testing.T) {
		deliver, db := function(t)
		_, err := deliver("acme", "order-0001", good)
		require.NoError(t, err)
		for range 2 {
			got, err := deliver("acme", "order-0002", good)
			require.ErrorContains(t, err, "order o-1 came before")
			require.Equal(t, idemlambda.ReasonFailed, got)
		}
		require.Len(t, db.rows(t, db.orders), 1)
		require.Len(t, db.messages(t), 1, "what is refused is not published")
	})
}
