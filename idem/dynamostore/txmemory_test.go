package dynamostore

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A unit of work over package memstore: what it refuses, and that nothing commits then.
func TestUnitsInMemory(t *testing.T) {
	poor := errors.New("poor")
	conditional := types.Put{TableName: ptr("t"), Item: account(0), ConditionExpression: ptr("attribute_not_exists(pk)")}
	otherwise := func(old map[string]types.AttributeValue) error {
		if old == nil {
			return errors.New("the old item is nil")
		}
		return idem.Permanent(poor)
	}
	answer := func(holds bool, old any) func(any) (bool, any) {
		return func(action any) (bool, any) {
			require.Equal(t, account(0), action.(types.TransactWriteItem).Put.Item)
			return holds, old
		}
	}
	for name, c := range map[string]struct {
		collect    func(*Tx)
		conditions func(any) (bool, any)
		want       string // of the error; empty if it commits
		is         error
	}{
		"no condition": {func(tx *Tx) {
			tx.Put(types.Put{TableName: ptr("t"), Item: account(0)}, nil)
			tx.Update(types.Update{TableName: ptr("t"), Key: account(1), UpdateExpression: ptr("SET n = :n")}, nil)
			tx.Delete(types.Delete{TableName: ptr("t"), Key: account(2)}, nil)
		}, nil, "", nil},
		"a mistake":                {func(tx *Tx) { tx.Put(types.Put{}, nil) }, nil, "TableName is missing", nil},
		"a condition nobody knows": {func(tx *Tx) { tx.Put(conditional, unexplained) }, nil, "Store.Conditions", errors.ErrUnsupported},
		"a check nobody knows": {func(tx *Tx) {
			tx.Check(types.ConditionCheck{TableName: ptr("t"), Key: account(0), ConditionExpression: ptr("n > :n")}, unexplained)
		}, nil, "Check (action 0)", errors.ErrUnsupported},
		"a condition on an update": {func(tx *Tx) {
			tx.Update(types.Update{TableName: ptr("t"), Key: account(0), UpdateExpression: ptr("SET n = :n"), ConditionExpression: ptr("n > :n")}, unexplained)
		}, nil, "Update (action 0)", errors.ErrUnsupported},
		"a condition on a deletion": {func(tx *Tx) {
			tx.Delete(types.Delete{TableName: ptr("t"), Key: account(0), ConditionExpression: ptr("n > :n")}, unexplained)
		}, nil, "Delete (action 0)", errors.ErrUnsupported},
		"it holds":                {func(tx *Tx) { tx.Put(conditional, unexplained) }, answer(true, nil), "", nil},
		"it does not hold":        {func(tx *Tx) { tx.Put(conditional, unexplained) }, answer(false, account(0)), codeCondition, ErrCondition},
		"and says why":            {func(tx *Tx) { tx.Put(conditional, otherwise) }, answer(false, account(0)), "poor", poor},
		"and says why of nothing": {func(tx *Tx) { tx.Put(conditional, otherwise) }, answer(false, nil), "poor", poor},
		"an item of another kind": {func(tx *Tx) { tx.Put(conditional, unexplained) }, answer(false, "item"), "is a string", nil},
		"two on one item": {func(tx *Tx) {
			tx.Put(types.Put{TableName: ptr("t"), Item: account(0)}, nil)
			tx.Put(types.Put{TableName: ptr("t"), Item: account(0)}, nil)
		}, nil, "on the same item", nil},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			store.Conditions(c.conditions)
			engine, err := idem.New(store, nil)
			require.NoError(t, err)
			key := idem.Operation{Name: "move", Repeat: protocol.Repeatable}.Key("acme", "1")
			_, err = idem.Do(t.Context(), engine, key, "", Transact(func(_ context.Context, tx *Tx, _ string) (string, error) {
				c.collect(tx)
				tx.Publish("moved", outbox.Message{Destination: "d", Type: "moved", Body: []byte("1")})
				return "done", nil
			}))
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				require.Empty(t, store.Units())
				return
			}
			require.NoError(t, err)
			require.Len(t, store.Units(), 1)
			require.Equal(t, "moved", store.Units()[0].(*Tx).Messages()[0].Type)
		})
	}
}

// What is shown of a unit is not the unit.
func TestMessagesAreShownAsCopies(t *testing.T) {
	tx := new(Tx)
	tx.Publish("moved", outbox.Message{Destination: "d", Type: "t", Body: []byte("body"), Attributes: map[string]string{"a": "1"}})
	shown := tx.Messages()[0]
	shown.Body[0], shown.Attributes["a"] = 'x', "2"
	require.Equal(t, "body", string(tx.Messages()[0].Body))
	require.Equal(t, "1", tx.Messages()[0].Attributes["a"])
}
